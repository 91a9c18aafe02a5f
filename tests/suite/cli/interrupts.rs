//! Signals at the wrong moment.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use wait_timeout::ChildExt;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit, wait_until};
use crate::kit::server::{ScriptedReply, Server};
use crate::kit::system::count_processes;

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Sends a signal, and returns the end of the run: it must end before a command that ignores the signal would be
/// killed.
fn interrupted(child: Child, signal: Signal) -> CommandResult {
    let begun = Instant::now();
    send(&child, signal);
    let ran = wait_for_exit(child);
    assert!(begun.elapsed() < Duration::from_millis(1_900), "{:?}", begun.elapsed());
    ran
}

fn streaming() -> Server {
    let piece = chat::delta(&json!({"content": "word "}));
    Server::new([ScriptedReply::open_stream().repeat_chunk(&piece, Duration::from_millis(20))])
}

/// Received output counts. After `kill -9` the reserved amount counts, since the received amount is then unknown.
#[test]
fn a_reply_that_is_cut_off_is_charged() {
    let output = |ran: &CommandResult| ran.json()["usage"]["output_tokens"].as_u64().unwrap();
    let (world, server) = (CliFixture::new(), streaming());
    let ran = world.run_with_server(&server, &["--json", "--timeout", "2"]);
    assert!((10..1_000).contains(&output(&ran)), "{}", ran.out);

    let (world, server) = (CliFixture::new(), streaming());
    let limited = ["--json", "--max-tokens", "100000"];
    let mut killed = world.command_with_server(&server, &limited).spawn().unwrap();
    server.wait_for(1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let resumed = world.run(&["resume", "last", "--json", "--timeout", "2"]);
    assert!((1_000..100_000).contains(&output(&resumed)), "{}", resumed.out);
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

/// The first signal is enough when the run is over and only its reader is still waited for.
#[test]
fn after_a_signal_a_stalled_reader_is_not_waited_for() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let world = CliFixture::new();
        let model = world.script_model(&format!("[[turn]]\ntext = '{}'", "word ".repeat(60_000)));
        let args = ["run", "x", "--model", &model, "--json", "--quiet", "--output-file", "out"];
        let mut child = world.command(&args).spawn().unwrap();
        wait_until("the run is over", || world.path("out").exists());
        send(&child, signal);
        let status = child.wait_timeout(Duration::from_secs(20)).unwrap();
        let _ = child.kill();
        assert_eq!(status.and_then(|status| status.code()), Some(code));
    }
}

/// The same holds for hooks at the end of a session.
#[test]
fn after_a_signal_end_hooks_are_not_waited_for() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Done.")]));
    let hook = "hooks.session_end=[{ name = 'slow', command = 'sleep 4733.9' }]";
    let child = world.command_with_server(&server, &["--json", "--set", hook]).spawn().unwrap();
    wait_until("the hook runs", || count_processes("4733.9") > 0);
    let ran = interrupted(child, Signal::TERM);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    wait_until("nothing is left", || count_processes("4733.9") == 0);
}

/// A signal in the middle of a reply comes in the middle of that reply in the scenario, too.
#[test]
fn an_interrupted_session_becomes_a_scenario_that_is_interrupted() {
    let world = CliFixture::new();
    let piece = chat::delta(&json!({"content": "word "}));
    let slow = ScriptedReply::open_stream().repeat_chunk(&piece, Duration::from_millis(20));
    let server = Server::new([chat::calls(&[("c1", "list_files", "{}")]), slow]);
    let child = world.command_with_server(&server, &[]).spawn().unwrap();
    server.wait_for(2);
    assert_eq!(interrupted(child, Signal::INT).code, 130);
    let scenario = world.run(&["test", "--from", "last"]);
    let during = "event = \"api_call_start\"\nnth = 2\nsignal = \"SIGINT\"";
    assert!(scenario.out.contains(during), "{}{}", scenario.out, scenario.err);
    world.write("made.toml", &scenario.out);
    let tested = world.run(&["test", "made.toml"]);
    assert_eq!(tested.code, 0, "{}\n{}", tested.out, scenario.out);
}

#[test]
fn a_stream_is_cut_off_at_once() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let (world, server) = (CliFixture::new(), streaming());
        let child = world.command_with_server(&server, &["--json"]).spawn().unwrap();
        server.wait_for(1);
        let ran = interrupted(child, signal);
        assert_eq!(ran.outcome(), outcome(code, "user_interrupt", "partial"), "{}", ran.err);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_command_is_ended_with_all_that_it_started() {
    let world = CliFixture::new();
    let call = ("c", "run_command", r#"{"command": "setsid sleep 4733.2 & sleep 4733.2"}"#);
    let server = Server::new([chat::calls(&[call])]);
    let child = world.command_with_server(&server, &["--json", "--mode", "yolo"]).spawn().unwrap();
    wait_until("both run", || count_processes("4733.2") == 2);
    let ran = interrupted(child, Signal::INT);
    assert_eq!(ran.outcome(), outcome(130, "user_interrupt", "partial"), "{}", ran.err);
    assert_eq!(count_processes("4733.2"), 0);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_wait_for_the_next_attempt_is_cut_short() {
    let reply = ScriptedReply::with_headers(429, &[("retry-after", "30")], "{}");
    let (world, server) = (CliFixture::new(), Server::new([reply]));
    let child = world.command_with_server(&server, &["--json"]).spawn().unwrap();
    server.wait_for(1);
    let ran = interrupted(child, Signal::INT);
    assert_eq!(ran.code, 130, "{}", ran.err);
}

#[test]
fn the_second_signal_ends_the_process_and_the_last_line_is_still_the_result() {
    let world = CliFixture::new();
    // The command ignores the first request to end, so that the run is still there.
    let call = (
        "c",
        "run_command",
        r#"{"command": "trap 'touch asked' TERM; touch on; sleep 4733.3; sleep 4733.3; sleep 4733.3"}"#,
    );
    let server = Server::new([chat::calls(&[call])]);
    let args = ["--output-format", "stream-json", "--mode", "yolo"];
    let child = world.command_with_server(&server, &args).spawn().unwrap();
    wait_until("it runs", || world.path("on").exists() && count_processes("4733.3") > 0);
    send(&child, Signal::INT);
    wait_until("the command is to end", || world.path("asked").exists());
    // An immediate repetition would be ignored.
    std::thread::sleep(Duration::from_millis(200));
    let ran = interrupted(child, Signal::INT);
    assert_eq!(ran.code, 130, "{}", ran.err);
    let result = ran.lines().last().unwrap().clone();
    assert_eq!(
        (&result["type"], &result["error"]),
        (&json!("result"), &json!("the process was terminated"))
    );
    wait_until("nothing is left", || count_processes("4733.3") == 0);
}

/// `timeout` sends its signal to the process, and at once again to its group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one_signal() {
    let (world, server) = (CliFixture::new(), streaming());
    let child =
        world.command_with_server(&server, &["--output-format", "stream-json"]).spawn().unwrap();
    server.wait_for(1);
    send(&child, Signal::TERM);
    let ran = interrupted(child, Signal::TERM);
    assert_eq!(ran.code, 143, "{}", ran.err);
    let lines = ran.lines();
    let [.., end, result] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&end["type"], &result["type"]), (&json!("agent_end"), &json!("result")));
    assert_eq!(result["error"], serde_json::Value::Null);
}

#[test]
fn nothing_of_a_run_survives_kill_9() {
    let world = CliFixture::new();
    let call = ("c", "run_command", r#"{"command": "setsid sleep 4733.4 & sleep 4733.4"}"#);
    let server = Server::new([chat::calls(&[call])]);
    let child = world.command_with_server(&server, &["--mode", "yolo"]).spawn().unwrap();
    wait_until("both run", || count_processes("4733.4") == 2);
    send(&child, Signal::KILL);
    wait_for_exit(child);
    wait_until("nothing is left", || count_processes("4733.4") == 0);
}

/// Temporary files are in a folder that exists from the first command on, and is removed with the engine, also if the
/// engine is killed: the supervisors of its commands remove it.
#[test]
fn temporary_files_do_not_outlive_the_engine() {
    for sandbox in ["workspace-write", "read-only", "off"] {
        let world = CliFixture::new();
        let temp = world.temp();
        std::fs::create_dir(&temp).unwrap();
        let left = || std::fs::read_dir(&temp).unwrap().count();
        let made = r#"{"command": "mkdir $TMPDIR/d && echo x > $TMPDIR/d/f && chmod 500 $TMPDIR/d && sleep 4733.5"}"#;
        let server =
            Server::new([ScriptedReply::silence(), chat::calls(&[("c", "run_command", made)])]);
        // `--set` does not require the mode: a required one would be checked before anything else.
        let sandboxed = format!("sandbox.mode={sandbox}");
        let args = ["--mode", "yolo", "--set", &sandboxed];
        let start =
            || world.command_with_server(&server, &args).env("TMPDIR", &temp).spawn().unwrap();
        let child = start();
        server.wait_for(1);
        assert_eq!(left(), 0, "{sandbox}: nothing has run yet");
        send(&child, Signal::KILL);
        wait_for_exit(child);
        let child = start();
        wait_until("it runs", || count_processes("4733.5") > 0);
        assert_eq!(left(), 1, "{sandbox}");
        send(&child, Signal::KILL);
        wait_for_exit(child);
        wait_until("nothing is left", || count_processes("4733.5") == 0 && left() == 0);
    }
}

/// Fault R14: a process that gets no processor time for a while does not take that for the server's silence.
#[test]
fn a_continued_process_reads_on_where_it_was() {
    let piece = |text: &str| chat::delta(&json!({"content": text}));
    let reply = ScriptedReply::open_stream().chunk(&piece("so ")).wait(Duration::from_millis(500));
    let reply = reply.chunk(&piece("far")).chunk(&chat::finish("stop")).chunk(&chat::end()).end();
    let (world, server) = (CliFixture::new(), Server::new([reply]));
    let sets = ["--set", "llm.timeout=2", "--set", "llm.idle_timeout=2", "--set", "llm.retries=0"];
    let args = [&["--json"], &sets[..]].concat();
    let child = world.command_with_server(&server, &args).spawn().unwrap();
    server.wait_for(1);
    std::thread::sleep(Duration::from_millis(200));
    send(&child, Signal::STOP);
    // Longer than the server may be silent.
    std::thread::sleep(Duration::from_secs(3));
    send(&child, Signal::CONT);
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(ran.json()["output"], "so far");
}

/// The answer stands, and the exit code reports the interrupt.
#[test]
fn a_run_that_is_being_evaluated_is_interrupted_like_any_other() {
    let bad = r#"{"completed": false, "confidence": 0.9}"#;
    for before in [&["Done."][..], &["Done.", bad]] {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let piece = chat::delta(&json!({"content": "word "}));
            let slow = ScriptedReply::open_stream().repeat_chunk(&piece, Duration::from_millis(20));
            let replies = before.iter().map(|text| chat::text(text)).chain([slow]);
            let (world, server) = (CliFixture::new(), Server::new(replies));
            let child = world
                .command_with_server(&server, &["--self-eval", "full", "--json"])
                .spawn()
                .unwrap();
            server.wait_for(before.len() + 1);
            let ran = interrupted(child, signal);
            assert_eq!(ran.outcome(), outcome(code, "user_interrupt", "partial"), "{}", ran.err);
            assert_eq!(ran.json()["output"], "Done.");
            assert_eq!(server.requests().len(), before.len() + 1);
        }
    }
}
