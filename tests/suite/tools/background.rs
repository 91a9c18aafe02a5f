//! Commands in the background: readiness, output, input, and end.

use std::fs;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use architect::machine::CallIntent;
use architect::policy::ConfirmMode;
use architect::port::{CancellationToken, EffectMessage};
use architect::tools::{ExecutionMode, ToolSettings, permission_rules};
use architect::types::{EffectId, ToolResult, ToolStatus};
use serde_json::{Value, json};

use super::fixture::{ToolFixture, yolo_settings};
use crate::kit::effect::scope;
use crate::kit::system::{count_sleeping, wait_until};

/// Starts a command in the background, with more arguments.
fn start_as(world: &ToolFixture, id: &str, command: &str, more: &Value) -> ToolResult {
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    match world.authorize_as(id, "run_command", &arguments) {
        Ok(call) => (call.job)(&scope()),
        Err(result) => result,
    }
}

fn start(world: &ToolFixture, command: &str, more: &Value) -> ToolResult {
    start_as(world, "call-1", command, more)
}

/// Starts a command that ends at once, again and again until a result has its end: on a busy machine, a start may
/// return earlier.
fn start_until_it_ends(world: &ToolFixture, command: &str) -> ToolResult {
    let start = |attempt| start_as(world, &format!("{command} {attempt}"), command, &json!({}));
    (0..10).map(start).find(|result| !result.text.contains("runs on")).unwrap()
}

fn output(world: &ToolFixture, more: &Value) -> String {
    let mut arguments = json!({"call_id": "call-1"});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.ok("command_output", &arguments)
}

fn input(world: &ToolFixture, text: &str) -> ToolResult {
    world.call("command_input", &json!({"call_id": "call-1", "text": text}))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

const GOES_ON: &str = "it runs on in the background with call_id \"call-1\": read its output with command_output, end it with \
     stop_command]";

#[test]
fn a_command_runs_on_until_it_is_stopped_with_all_that_it_started() {
    let world = ToolFixture::new();
    let command = "echo warming up; sleep 0.1; printf '\\033[32mListening\\033[0m on 1\\n'; setsid sleep 4790.1 & \
                   echo more; sleep 4790.1";
    let result = start(&world, command, &json!({"ready_pattern": "^Listening"}));
    assert_eq!(result.status, ToolStatus::Ok, "{}", result.text);
    assert!(result.text.starts_with("warming up\nListening on 1\n"), "{}", result.text);
    assert!(result.text.contains(" s: a line of its output matches `^Listening`; "));
    assert!(result.text.ends_with(GOES_ON), "{}", result.text);
    wait_until("both run", || count_sleeping("4790.1") == 2);
    assert!(world.ok("run_command", &json!({"command": "echo other"})).starts_with("other\n"));
    let rest = world.ok("stop_command", &json!({"call_id": "call-1"}));
    assert!(
        rest.ends_with("[stopped: interrupted; a background process was ended with it]"),
        "{rest}"
    );
    assert_eq!(count_sleeping("4790.1"), 0);
    let again = world.ok("stop_command", &json!({"call_id": "call-1"}));
    assert!(again.starts_with("[it had ended already: interrupted"), "{again}");
    assert!(output(&world, &json!({"offset": 1, "limit": 1})).starts_with(
        "warming up\n[lines 1-1 of 3; read on with offset 2; it has ended: interrupted"
    ));
}

#[test]
fn why_a_command_is_not_ready_is_reported() {
    let world = ToolFixture::new();
    let ended = start(&world, "echo no config >&2; exit 3", &json!({"ready_pattern": "up"}));
    assert_eq!(ended.status, ToolStatus::Failed);
    assert_eq!(&*ended.text, "no config\n[it ended before it was ready: exit code 3]");
    let ended = start(&world, "echo done", &json!({"ready_file": "there"}));
    assert_eq!(ended.status, ToolStatus::Failed);
    assert_eq!(&*ended.text, "done\n[it ended before it was ready: exit code 0]");
    // Without a condition, the end is no failure.
    let ended = start_until_it_ends(&world, "echo done");
    assert_eq!((ended.status, &*ended.text), (ToolStatus::Ok, "done\n[exit code 0]"));
    let ended = start_until_it_ends(&world, "nonsense-command");
    assert!(ended.text.ends_with("[exit code 127: command not found]"), "{}", ended.text);
    let late =
        start(&world, "echo slow; sleep 4790.2", &json!({"ready_pattern": "up", "timeout": 1}));
    assert_eq!(late.status, ToolStatus::Failed);
    assert!(late.text.starts_with("slow\n[not ready after "), "{}", late.text);
    assert!(late.text.contains("no line of its output matches `up`"), "{}", late.text);
    assert_eq!(count_sleeping("4790.2"), 1);
}

#[test]
fn a_file_that_is_new_or_was_changed_makes_a_command_ready() {
    let world = ToolFixture::new();
    world.write("made", "old");
    let stale = start(&world, "sleep 9", &json!({"ready_file": "made", "timeout": 1}));
    assert!(stale.text.contains("made was not changed"), "{}", stale.text);
    world.ok("stop_command", &json!({"call_id": "call-1"}));
    for (command, file) in [("echo new > made; sleep 9", "made"), ("touch other; sleep 9", "other")]
    {
        let result = start(&world, command, &json!({"ready_file": file}));
        assert_eq!(result.status, ToolStatus::Ok, "{}", result.text);
        assert!(result.text.contains(&format!(" s: {file} is there; ")), "{}", result.text);
        world.ok("stop_command", &json!({"call_id": "call-1"}));
    }
    let outside = start(&world, "true", &json!({"ready_file": "../x"}));
    assert_eq!(outside.status, ToolStatus::Malformed, "{}", outside.text);
}

#[test]
fn an_open_port_makes_a_command_ready_and_another_program_on_it_does_not() {
    let world = ToolFixture::new();
    world.write("page.txt", "hello\n");
    // Another program of this machine may have the port first.
    let serve = |_| {
        let port = free_port();
        let server = format!("exec python3 -u -m http.server {port} --bind 127.0.0.1");
        let result = start(&world, &server, &json!({"ready_port": port}));
        let is_open = result.text.contains(&format!(" s: port {port} is open; "));
        (is_open && result.status == ToolStatus::Ok).then_some((port, server))
    };
    let (port, server) = (0..5).find_map(serve).expect("a port that is open");
    let address = format!("http://127.0.0.1:{port}/page.txt");
    let read = format!(
        "python3 -c \"import urllib.request as r; print(r.urlopen('{address}').read().decode())\""
    );
    assert!(world.ok("run_command", &json!({"command": read})).starts_with("hello\n"));
    let log = output(&world, &json!({"wait": 5}));
    assert!(log.contains("GET /page.txt"), "{log}");
    let second = start_as(&world, "call-2", &server, &json!({"ready_port": port}));
    assert!(second.text.contains(&format!("port {port} is open already")), "{}", second.text);
    world.ok("stop_command", &json!({"call_id": "call-1"}));
}

#[test]
fn a_command_reads_lines_until_its_input_is_closed() {
    let world = ToolFixture::new();
    let command = "printf 'Name: '; while read -r line; do echo \"got $line\"; done; echo end";
    let result = start(&world, command, &json!({"ready_pattern": "Name"}));
    assert!(result.text.starts_with("Name: \n[ready"), "{}", result.text);
    assert_eq!(&*input(&world, "one").text, "[written; read the answer with command_output]");
    let answer = output(&world, &json!({"wait": 5}));
    assert!(answer.starts_with("Name: got one\n[lines 1-1 of 1; still running"), "{answer}");
    let close = json!({"call_id": "call-1", "text": "two\nthree\n", "close": true});
    assert_eq!(world.ok("command_input", &close), "[written, and closed]");
    let answer = output(&world, &json!({"wait": 5, "until_end": true}));
    assert_eq!(answer, "got two\ngot three\nend\n[lines 2-4 of 4; it has ended: exit code 0]");
    let late = input(&world, "x");
    assert_eq!(&*late.text, "The command takes no input: it has ended: exit code 0.");
    let error = world.err("command_input", &json!({"call_id": "call-1"}));
    assert!(error.contains("text is empty, and close is not set"), "{error}");
}

#[test]
fn input_that_is_not_read_blocks_no_one() {
    let world = ToolFixture::new();
    start(&world, "exec sleep 4790.3", &json!({}));
    let text = "x".repeat(60_000);
    assert_eq!(input(&world, &text).status, ToolStatus::Ok);
    let error = world.err("command_input", &json!({"call_id": "call-1", "text": text}));
    assert!(error.contains("at most 65536 bytes of input"), "{error}");
}

#[test]
fn a_call_waits_for_output_or_the_end_and_what_it_says_shows_that_time_has_passed() {
    let world = ToolFixture::new();
    start(&world, "read x; echo late; sleep 0.4; echo last", &json!({}));
    assert_eq!(output(&world, &json!({})), "[no new output; still running]");
    assert_eq!(output(&world, &json!({})), "[no new output; still running]");
    let first = output(&world, &json!({"wait": 1, "until_end": true}));
    assert!(first.contains("still running after "), "{first}");
    input(&world, "go");
    let begun = Instant::now();
    let all = output(&world, &json!({"wait": 60, "until_end": true}));
    assert!(all.ends_with("; it has ended: exit code 0]") && all.contains("last\n"), "{all}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    let error = world.err("command_output", &json!({"call_id": "call-1", "wait": 301}));
    assert!(error.contains("at most 300 seconds"), "{error}");
    let error = world.err("command_output", &json!({"call_id": "x"}));
    assert_eq!(
        error,
        "There is no command with call_id 'x'. No command runs in the background. Those of an earlier part of the session \
         ended with it."
    );
}

#[test]
fn a_flood_of_output_is_stored_whole_and_paged() {
    let world = ToolFixture::new();
    let result =
        start(&world, "seq 1 300000; echo ready; sleep 4790.4", &json!({"ready_pattern": "ready"}));
    assert!(result.text.len() < 10_000, "{}", result.text.len());
    assert!(result.text.contains("[... 299801 lines omitted ...]"), "{}", result.text);
    let whole =
        world.ok("read_output", &json!({"call_id": "call-1", "offset": 150_000, "limit": 1}));
    assert!(whole.starts_with("150000\n[lines 150000-150000 of 30000"), "{whole}");
    let page = output(&world, &json!({"offset": 1, "limit": 3}));
    assert!(page.starts_with("1\n2\n3\n[lines 1-3 of 300001; read on with offset 4;"), "{page}");
    let page = output(&world, &json!({"offset": 150_000, "limit": 2}));
    assert!(page.starts_with("150000\n150001\n[lines 150000-150001 of 300001; "), "{page}");
    let page = output(&world, &json!({"offset": 290_000, "limit": 100_000}));
    assert!(page.starts_with("290000\n") && page.len() < 9_000, "{page}");
}

#[test]
fn nothing_survives_the_end_of_the_run() {
    for is_finished in [true, false] {
        let world = ToolFixture::new();
        let trap = if is_finished { "trap '' TERM; " } else { "" };
        let command = format!("{trap}sleep 4790.5 & wait; sleep 4790.5");
        start_as(&world, "a", &command, &json!({}));
        start_as(&world, "b", "setsid -f sleep 4790.5; sleep 4790.5", &json!({}));
        wait_until("they run", || count_sleeping("4790.5") == 3);
        if is_finished {
            world.registry.finish(Duration::from_secs(10));
            assert_eq!(count_sleeping("4790.5"), 0);
            let late = start(&world, "sleep 4790.5", &json!({}));
            assert_eq!(&*late.text, "The command was not run: the run is over.");
        }
        drop(world);
        wait_until("nothing is left", || count_sleeping("4790.5") == 0);
    }
}

/// Starts a command as an effect of a run. Returns the token that stops it, and the messages to the run.
fn start_in_run(world: &ToolFixture, more: &Value) -> (CancellationToken, Receiver<EffectMessage>) {
    let mut arguments = json!({"command": "read x; echo $x", "background": true, "needed": true});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let call = world.authorize("run_command", &arguments).unwrap();
    let command = "read x; echo $x".into();
    assert_eq!(call.intent, CallIntent::Background { command, needed: Some(true) });
    let (send, received) = channel();
    let cancel = CancellationToken::new();
    let report = move |message| drop(send.send(message));
    let scope = scope().with_messages(report).with_command(EffectId(7), cancel.clone());
    (call.job)(&scope);
    (cancel, received)
}

const ENDED: EffectMessage = EffectMessage::CommandEnded(EffectId(7));

/// The run is notified of the end before a call can report it.
#[test]
fn the_end_of_a_command_is_reported_to_the_run() {
    let world = ToolFixture::new();
    let (_, messages) = start_in_run(&world, &json!({}));
    assert!(messages.try_recv().is_err());
    input(&world, "go");
    output(&world, &json!({"wait": 10, "until_end": true}));
    assert_eq!(messages.try_recv(), Ok(ENDED));
}

#[test]
fn a_run_stops_its_commands() {
    let world = ToolFixture::new();
    let (cancel, messages) = start_in_run(&world, &json!({}));
    cancel.cancel();
    assert_eq!(messages.recv_timeout(Duration::from_secs(10)), Ok(ENDED));
    let text = output(&world, &json!({"wait": 10, "until_end": true}));
    assert!(text.contains("it has ended: interrupted"), "{text}");
}

#[test]
fn a_command_that_does_not_start_is_reported_as_ended() {
    let world = ToolFixture::new();
    let (_, messages) = start_in_run(&world, &json!({"cwd": "missing"}));
    assert_eq!(messages.try_recv(), Ok(ENDED));
}

#[test]
fn a_needed_command_is_unfinished_until_it_has_ended() {
    let world = ToolFixture::new();
    start(&world, "read x; echo $x", &json!({"needed": true}));
    let needed = || world.registry.wait_for_needed(Duration::ZERO, &scope().cancel);
    assert_eq!(needed().running, ["`read x; echo $x` (call_id \"call-1\")"]);
    input(&world, "go");
    output(&world, &json!({"wait": 10, "until_end": true}));
    assert_eq!((needed().running, needed().ended), (Vec::<String>::new(), Vec::new()));
}

#[test]
fn the_end_of_a_needed_command_that_no_call_has_shown_is_waited_for_and_reported_once() {
    let world = ToolFixture::new();
    start(&world, "read x; seq 9; exit 3", &json!({"needed": true}));
    input(&world, "go");
    let wait = || world.registry.wait_for_needed(Duration::from_secs(30), &scope().cancel);
    let first = wait();
    let lines = "[... 4 lines omitted ...]\n5\n6\n7\n8\n9";
    assert_eq!(
        first.ended,
        [format!("`read x; seq 9; exit 3` (call_id \"call-1\"): exit code 3\n{lines}")]
    );
    assert!(first.running.is_empty() && wait().ended.is_empty());
    // Ends that stop_command or the start itself has shown are not reported again.
    start_as(&world, "call-2", "sleep 4790.8", &json!({"needed": true}));
    world.ok("stop_command", &json!({"call_id": "call-2"}));
    start_as(&world, "call-3", "exit 4", &json!({"needed": true, "ready_pattern": "up"}));
    assert!(wait().ended.is_empty());
}

#[test]
fn the_number_of_commands_is_limited() {
    let world = ToolFixture::new();
    let pattern = json!({"ready_pattern": "on"});
    for number in 0..8 {
        let result = start_as(&world, &format!("c{number}"), "echo on; sleep 4790.6", &pattern);
        assert_eq!(result.status, ToolStatus::Ok, "{}", result.text);
    }
    let result = start_as(&world, "c8", "echo on", &pattern);
    assert!(result.text.contains("8 commands run in the background already"), "{}", result.text);
    let twice = start_as(&world, "c0", "echo on", &pattern);
    assert!(twice.text.contains("a command with call_id 'c0' runs already"), "{}", twice.text);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let world = ToolFixture::new();
    let refused = |arguments: &Value| world.err("run_command", arguments);
    let error = refused(&json!({"command": "true", "ready_port": 80}));
    assert!(error.contains("are for background: true"), "{error}");
    let both = json!({"command": "true", "background": true, "ready_port": 80, "ready_file": "x"});
    assert!(refused(&both).contains("give one of ready_pattern, ready_port and ready_file"));
    let wrong = json!({"command": "true", "background": true, "ready_pattern": "("});
    assert!(refused(&wrong).contains("ready_pattern: "), "{}", refused(&wrong));
}

fn with_rules(mode: ConfirmMode, deny: &[&str], allow: &[&str]) -> ToolFixture {
    let rules = permission_rules(deny, &[], allow).unwrap();
    ToolFixture::with(ToolSettings { mode, rules, ..ToolSettings::default() }, |_| {})
}

/// The text is checked as if the command were a shell, also if it comes in pieces.
#[test]
fn what_no_command_may_do_is_not_written_to_one() {
    let world = with_rules(ConfirmMode::Yolo, &["run_command(git push *)"], &[]);
    start(&world, "bash", &json!({}));
    let denied = |text: &str| {
        let result = input(&world, text);
        assert_eq!(result.status, ToolStatus::Denied, "{text}: {}", result.text);
        result.text.to_string()
    };
    assert!(denied("git push origin").contains("rule run_command(git push *) of permissions.deny"));
    assert!(denied("echo a && sudo ls").contains("no rule and no mode allows that"));
    assert!(denied("rm -rf /").contains("no rule and no mode allows that"));
    assert_eq!(input(&world, "echo a").status, ToolStatus::Ok);
    assert_eq!(input(&world, "git \\").status, ToolStatus::Ok);
    denied("push origin");
    let background = start_as(&world, "b", "git push", &json!({}));
    assert_eq!(background.status, ToolStatus::Denied, "{}", background.text);
}

/// A rule that allows a command says nothing about the same text for an unknown program.
#[test]
fn input_needs_a_permission_of_its_own() {
    let allow = ["run_command(cat)", "run_command(rm *)"];
    let world = with_rules(ConfirmMode::ConfirmSensitive, &[], &allow);
    assert_eq!(start(&world, "cat", &json!({})).status, ToolStatus::Ok);
    for text in ["rm x", "ls"] {
        let result = input(&world, text);
        assert_eq!(result.status, ToolStatus::Denied, "{text}: {}", result.text);
        assert!(
            result.text.contains("or with a rule like --allow 'command_input'"),
            "{}",
            result.text
        );
    }
    // Reading and stopping is no change.
    output(&world, &json!({}));
    world.ok("stop_command", &json!({"call_id": "call-1"}));
    let world =
        with_rules(ConfirmMode::ConfirmSensitive, &[], &["run_command(cat)", "command_input"]);
    start(&world, "cat", &json!({}));
    assert_eq!(input(&world, "rm x").status, ToolStatus::Ok);
    // And a rule for input allows no command.
    let other = world.call("run_command", &json!({"command": "touch x"}));
    assert_eq!(other.status, ToolStatus::Denied, "{}", other.text);
    let asked = start_as(&world, "b", "touch x", &json!({}));
    assert_eq!(asked.status, ToolStatus::Denied, "{}", asked.text);
}

#[test]
fn a_dry_run_starts_nothing() {
    let settings = ToolSettings { execution: ExecutionMode::DryRun, ..yolo_settings() };
    let world = ToolFixture::with(settings, |_| {});
    let result = start(&world, "touch made; sleep 4790.7", &json!({"ready_file": "made"}));
    assert!(result.text.starts_with("Dry run: run_command was not run"), "{}", result.text);
    assert!(result.text.contains("(in the background)"), "{}", result.text);
    assert!(!world.path.join("made").exists());
    assert!(input(&world, "x").text.starts_with("Dry run: command_input was not run"));
}

#[test]
fn what_a_rule_denies_is_renamed_when_the_command_has_ended() {
    let world = with_rules(ConfirmMode::Yolo, &["write_file(*.key)"], &[]);
    world.write("make.sh", "read x; for name in a.key; do echo x > $name; done");
    start(&world, "sh make.sh", &json!({}));
    input(&world, "go");
    let end = output(&world, &json!({"wait": 10, "until_end": true}));
    assert!(
        end.contains("'a.key' must not be written, and was renamed to 'a.key.denied'"),
        "{end}"
    );
    assert!(!world.path.join("a.key").exists());
    fs::remove_file(world.path.join("a.key.denied")).unwrap();
}
