//! The environment of the process: closed files, unused signals, inherited children, and being stopped.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit, wait_until};
use crate::kit::server::{ScriptedReply, Server};

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Returns a shell command that runs `first`, and then becomes `command`.
fn after(first: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    let becomes = format!("{first} exec \"$0\" \"$@\"");
    shell.arg("-c").arg(becomes).arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell.current_dir(command.get_current_dir().unwrap());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn two_steps() -> Server {
    let write = ("c1", "write_file", r#"{"path": "a", "content": "1\n"}"#);
    let run = ("c2", "run_command", r#"{"command": "sleep 0.3; cat a"}"#);
    Server::new([chat::calls(&[write]), chat::calls(&[run]), chat::text("Done.")])
}

/// Returns the last tool result that was sent.
fn stderr_of(server: &Server) -> String {
    let body = server.requests().last().unwrap().json();
    body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned()
}

/// Fault G9: no file that is opened later takes the descriptor of a standard file and is written to as one.
#[test]
fn standard_files_may_be_closed_from_the_start() {
    for closed in ["exec <&-;", "exec >&-;", "exec 2>&-;", "exec <&- >&- 2>&-;"] {
        let (world, server) = (CliFixture::new(), two_steps());
        let task = world.command_with_server(&server, &["--mode", "yolo", "--json"]);
        let ran = wait_for_exit(after(closed, &task).spawn().unwrap());
        // The result could not be written.
        let is_stdout_closed = closed.contains(">&-") && !closed.starts_with("exec 2");
        assert_eq!(ran.code, if is_stdout_closed { 141 } else { 0 }, "{closed} {}", ran.err);
        assert_eq!(world.read("a"), "1\n");
        assert!(stderr_of(&server).contains('1'));
        assert_eq!(ran.out.is_empty(), is_stdout_closed);
        assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0, "{closed}");
    }
}

/// Processes inherit an ignored `SIGCHLD` from their parent.
#[test]
fn ends_of_commands_are_known_below_a_parent_that_ignores_them() {
    let (world, server) = (CliFixture::new(), two_steps());
    let task = world.command_with_server(&server, &["--mode", "yolo", "--json"]);
    // Not every shell ignores the signal on request.
    let ignored = "set -- \"$0\" \"$@\"; exec env --ignore-signal=CHLD \"$@\";";
    let ran = wait_for_exit(after(ignored, &task).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(stderr_of(&server), "1\n[exit code 0]");
}

/// This happens in a container with a folder of the host.
#[test]
fn root_is_warned_of_a_workspace_that_commands_cannot_write() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Done.")]));
    let user = rustix::process::Uid::from_raw(65_534);
    if rustix::fs::chown(world.path(""), Some(user), None).is_err() {
        return println!("skipped: only root can give a folder away");
    }
    rustix::fs::chmod(world.path(""), 0o700.into()).unwrap();
    let warned = |ran: CommandResult| ran.err.contains("belongs to the user 65534");
    assert!(warned(world.run_with_server(&server, &[])));
    let server = Server::new([chat::text("Done.")]);
    assert!(!warned(world.run_with_server(&server, &["--sandbox", "off"])));
    assert!(world.run(&["doctor"]).out.contains("belongs to the user 65534"));
}

#[test]
fn commands_read_the_registry_of_the_user_and_not_its_token() {
    let world = CliFixture::new();
    let text = "registry=https://u:canary@npm.example/\n//npm.example/:_authToken=canary\n";
    std::fs::write(world.home().join(".npmrc"), text).unwrap();
    let model = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"cat ~/.npmrc; echo x >> ~/.npmrc\" } }]\n\
                 [[turn]]\ntext = \"Done.\"\n";
    let ran = world.run_script(model, &["--mode", "yolo"]);
    let journals = world.journals();
    assert!(journals.contains("\"registry=https://npm.example/\\n"), "{journals}");
    assert!(!journals.contains("canary") && !ran.err.contains("use the public one"), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(world.home().join(".npmrc")).unwrap(), text);
}

#[test]
fn the_user_is_warned_if_commands_do_not_know_the_registry() {
    let (world, model) = (CliFixture::new(), "[[turn]]\ntext = \"Done.\"\n");
    let (registry, token) = ("npmRegistryServer: https://npm.example/\n", "npmAuthToken: x\n");
    for (text, args, warns) in [
        (registry.to_owned() + token, &[][..], true),
        (registry.to_owned() + token, &["--network", "off"], false),
        (token.to_owned(), &[], false),
        (registry.to_owned(), &[], false),
    ] {
        std::fs::write(world.home().join(".yarnrc.yml"), &text).unwrap();
        let ran = world.run_script(model, args);
        assert_eq!((ran.code, ran.err.contains("use the public one")), (0, warns), "{text}");
    }
}

/// Commands have shared memory of their own at this path.
#[test]
fn a_workspace_can_be_in_shared_memory() {
    let Ok(workspace) = tempfile::Builder::new().prefix("w").tempdir_in("/dev/shm") else {
        return println!("skipped: this system has no /dev/shm");
    };
    std::fs::write(workspace.path().join("a"), "one").unwrap();
    for (mode, written) in [("workspace-write", true), ("read-only", false)] {
        let world = CliFixture::new();
        let model = world.script_model(
            "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"ls /dev/shm; cat a; echo two > b\" } }]\n\
             [[turn]]\ntext = \"Done.\"\n",
        );
        let set = format!("sandbox.mode={mode}");
        let args = ["run", "x", "--model", &model, "--mode", "yolo", "--json", "--set", &set];
        let ran =
            wait_for_exit(world.command(&args).current_dir(workspace.path()).spawn().unwrap());
        let (name, journals) = (workspace.path().file_name().unwrap(), world.journals());
        assert!(journals.contains(&format!("{}\\none", name.to_str().unwrap())), "{journals}");
        let is_written = workspace.path().join("b").exists();
        assert_eq!((ran.code, is_written), (0, written), "{mode}: {journals}");
        let _ = std::fs::remove_file(workspace.path().join("b"));
    }
}

/// In a container, the user may have no home.
#[test]
fn commands_run_without_a_home_to_store_anything_in() {
    let (world, server) = (CliFixture::new(), two_steps());
    let mut task = world.command_with_server(&server, &["--mode", "yolo", "--ephemeral"]);
    let ran = wait_for_exit(task.env("HOME", "/dev/null").spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(stderr_of(&server), "1\n[exit code 0]");
}

/// A parent process such as Node makes the output non-blocking.
#[test]
fn a_non_blocking_standard_output_gets_each_byte_once() {
    let answer = "0123456789\n".repeat(20_000);
    let (world, server) = (CliFixture::new(), Server::new([chat::text(&answer)]));
    let (mut reader, writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let mut task = world.command_with_server(&server, &["--quiet"]);
    let mut child = task.stdout(writer).spawn().unwrap();
    // The command struct also holds the other end of the pipe.
    drop(task);
    wait_until("a full pipe", || rustix::io::ioctl_fionread(&reader).unwrap() >= 60_000);
    let mut out = String::new();
    reader.read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!((out.len(), out == answer), (answer.len(), true));
}

/// Fault G13.
#[test]
fn inherited_child_processes_are_left_alone() {
    let (world, server) = (CliFixture::new(), two_steps());
    let task = world.command_with_server(&server, &["--mode", "yolo", "--json"]);
    let children = "i=0; while [ $i -lt 50 ]; do sleep 0.$i & i=$((i+1)); done;";
    let ran = wait_for_exit(after(children, &task).spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(stderr_of(&server).contains('1'), "{}", stderr_of(&server));
}

/// Fault G15: signals without a defined meaning don't end a run.
#[test]
fn user_signals_change_nothing() {
    let (world, server) = (CliFixture::new(), two_steps());
    let child = world.command_with_server(&server, &["--mode", "yolo", "--json"]).spawn().unwrap();
    server.wait_for(2);
    for signal in [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::USR1] {
        send(&child, signal);
    }
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
}

/// Stops a process for a while, and lets it go on.
fn stopped(child: &Child, length: Duration) {
    send(child, Signal::STOP);
    thread::sleep(length);
    send(child, Signal::CONT);
}

fn streaming(pieces: usize, pause: Duration) -> ScriptedReply {
    let piece = chat::delta(&json!({"content": "word "}));
    let reply =
        (0..pieces).fold(ScriptedReply::open_stream(), |reply, _| reply.chunk(&piece).wait(pause));
    reply.chunk(&chat::finish("stop")).chunk(&chat::end()).end()
}

/// Fault G10.
#[test]
fn a_stopped_process_continues_where_it_was() {
    let world = CliFixture::new();
    let server = Server::new([streaming(20, Duration::from_millis(20))]);
    let child = world.command_with_server(&server, &["--json"]).spawn().unwrap();
    server.wait_for(1);
    send(&child, Signal::TSTP);
    thread::sleep(Duration::from_millis(700));
    send(&child, Signal::CONT);
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(ran.json()["output"], "word ".repeat(20));
    assert_eq!(server.requests().len(), 1);
}

/// Faults L59 and C2, as near as a process comes to a machine that sleeps: the answer was lost meanwhile, and the limit
/// for silence has passed when the process continues. So it asks again, at once.
#[test]
fn after_a_sleep_a_call_that_fell_silent_is_made_again() {
    let world = CliFixture::new();
    let silent =
        ScriptedReply::open_stream().chunk(&chat::delta(&json!({"content": "word "}))).hang();
    let server = Server::new([silent, chat::text("Fine.")]);
    let args = ["--json", "--set", "llm.timeout=1", "--set", "llm.idle_timeout=1"];
    let child = world.command_with_server(&server, &args).spawn().unwrap();
    server.wait_for(1);
    stopped(&child, Duration::from_millis(1_500));
    let awake = Instant::now();
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    // The wait before another attempt takes a second at the most.
    assert!(awake.elapsed() < Duration::from_secs(8), "{:?}", awake.elapsed());
    assert_eq!(server.requests().len(), 2);
}

/// Fault C2: time that passes during a sleep counts against the limit of the whole run.
#[test]
fn after_a_sleep_beyond_its_limit_a_run_is_over() {
    let world = CliFixture::new();
    let server = Server::new([streaming(2_000, Duration::from_millis(10))]);
    let child = world.command_with_server(&server, &["--json", "--timeout", "2"]).spawn().unwrap();
    server.wait_for(1);
    stopped(&child, Duration::from_millis(2_500));
    let awake = Instant::now();
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(2, "timeout", "partial"), "{}", ran.err);
    assert!(awake.elapsed() < Duration::from_millis(2_500), "{:?}", awake.elapsed());
}

/// Fault C2: the supervisor enforces the limit of a command while the engine is stopped.
#[test]
fn a_command_is_ended_in_time_also_while_its_engine_sleeps() {
    let world = CliFixture::new();
    let call = ("c", "run_command", r#"{"command": "touch on; sleep 4733.7", "timeout": 1}"#);
    let server = Server::new([chat::calls(&[call]), chat::text("I see.")]);
    let child = world.command_with_server(&server, &["--json", "--mode", "yolo"]).spawn().unwrap();
    wait_until("it runs", || world.path("on").exists());
    send(&child, Signal::STOP);
    wait_until("it is gone", || crate::kit::system::count_processes("4733.7") == 0);
    send(&child, Signal::CONT);
    let ran: CommandResult = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(stderr_of(&server).contains("timed out after 1 s"), "{}", stderr_of(&server));
}

/// Fault S23: neither the model, nor the journal, nor a reader of the output sees a secret of the environment, in
/// whatever way a tool got it.
#[test]
fn a_secret_in_the_output_of_a_tool_is_masked() {
    let world = CliFixture::new();
    world.write(".env", "TOKEN=canary-123456789\nKEY=canarycage\n");
    // The model's own text of a call is not masked.
    let long = r#"{"command": "for i in $(seq 3000); do echo canary-$((123456788 + 1)); done"}"#;
    let calls = [
        ("c1", "read_file", r#"{"path": ".env"}"#),
        ("c2", "run_command", r#"{"command": "cat .env; cat .env >&2; printf canary-; false"}"#),
        ("c3", "run_command", long),
        ("c4", "grep", r#"{"text": "TOKEN"}"#),
    ];
    let server = Server::new([chat::calls(&calls), chat::text("I see.")]);
    let mut task = world
        .command_with_server(&server, &["--mode", "yolo", "--output-format", "stream-json", "-v"]);
    task.env("DEPLOY_TOKEN", "canary-123456789").env("DEPLOY_API_KEY", "canarycage");
    let ran = wait_for_exit(task.spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let body = server.requests()[1].body.clone();
    assert!(body.contains("TOKEN=***") && body.contains("canary-"), "{body}");
    assert!(body.contains("KEY=***") && !body.contains("canarycage"), "{body}");
    let kept = Command::new("grep").args(["-r", "canary-123456789"]).arg(world.home()).output();
    let kept = String::from_utf8(kept.unwrap().stdout).unwrap();
    for text in [&body, &ran.out, &ran.err, &kept] {
        assert!(!text.contains("canary-123456789"), "{text}");
    }
}

/// Fault C6: a duration that no clock can represent is treated as a very long one.
#[test]
fn times_at_the_end_of_their_range_are_accepted_or_refused_with_a_message() {
    let world = CliFixture::new();
    let call = ("c", "run_command", r#"{"command": "true", "timeout": 18446744073709551615}"#);
    let server = Server::new([chat::calls(&[call]), chat::text("I see.")]);
    let ran =
        world.run_with_server(&server, &["--mode", "yolo", "--json", "--timeout", "31536000"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(
        stderr_of(&server).contains("timeout is 18446744073709551615"),
        "{}",
        stderr_of(&server)
    );
    for wrong in ["31536001", "1e300", "18446744073709551616", "-1", "NaN", "inf"] {
        let timeout = format!("--timeout={wrong}");
        let ran = world.run(&["run", "x", "--model", "scripted/none", &timeout]);
        assert_eq!(ran.code, 3, "{wrong}: {}", ran.err);
        assert!(ran.err.contains("timeout"), "{wrong}: {}", ran.err);
    }
}
