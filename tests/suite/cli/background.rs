//! Commands in the background of a run: they end with it, however it ends.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome, wait_for_exit, wait_until};
use crate::kit::server::{ScriptedReply, Server};
use crate::kit::system::count_processes;

/// A call that starts a command in the background.
fn start(id: &'static str, command: &str, more: &str) -> ScriptedReply {
    let arguments = format!(r#"{{"command": "{command}", "background": true{more}}}"#);
    chat::calls(&[(id, "run_command", &arguments)])
}

const YOLO: [&str; 3] = ["--json", "--mode", "yolo"];

#[test]
fn what_runs_in_the_background_ends_with_the_answer() {
    let world = CliFixture::new();
    let server = Server::new([
        start("c1", "setsid sleep 4791.1 & sleep 4791.1", ""),
        chat::calls(&[("c2", "run_command", r#"{"command": "pgrep -fc 'sleep 4791.[1]'; true"}"#)]),
        chat::text("Done."),
    ]);
    let ran = world.run_with_server(&server, &YOLO);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let shown = server.requests()[1].json()["messages"].to_string();
    assert!(shown.contains("started; it runs on in the background with call_id"), "{shown}");
    assert_eq!(count_processes("4791.1"), 0);
}

#[test]
fn what_runs_in_the_background_ends_with_an_interrupted_run_and_with_its_time() {
    let (world, server) = (CliFixture::new(), || {
        Server::new([
            start("c1", "setsid sleep 4791.2 & sleep 4791.2", ""),
            ScriptedReply::silence(),
        ])
    });
    let first = server();
    let child = world.command_with_server(&first, &YOLO).spawn().unwrap();
    first.wait_for(2);
    wait_until("both run", || count_processes("4791.2") == 2);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let begun = Instant::now();
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(130, "user_interrupt", "partial"), "{}", ran.err);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(count_processes("4791.2"), 0);

    let ran = world.run_with_server(&server(), &[&YOLO[..], &["--timeout", "2"]].concat());
    assert_eq!(ran.json()["stop_reason"], "timeout", "{}", ran.err);
    wait_until("nothing is left", || count_processes("4791.2") == 0);
}

/// The journal has the started commands.
#[test]
fn a_killed_run_leaves_nothing_and_the_resumed_one_learns_what_is_gone() {
    let world = CliFixture::new();
    let (ended, runs) = (
        r#"{"command": "echo over", "background": true}"#,
        r#"{"command": "echo up; setsid sleep 4791.3 & sleep 4791.3", "background": true, "ready_pattern": "up"}"#,
    );
    let server = Server::new([
        chat::calls(&[("c0", "run_command", ended), ("c1", "run_command", runs)]),
        chat::calls(&[("c2", "run_command", r#"{"command": "sleep 4791.4"}"#)]),
        chat::calls(&[("c3", "command_output", r#"{"call_id": "c1"}"#)]),
        chat::text("Done."),
        chat::text("Done again."),
    ]);
    let child = world.command_with_server(&server, &YOLO).spawn().unwrap();
    wait_until("all run", || count_processes("4791.3") == 2 && count_processes("4791.4") == 1);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    wait_for_exit(child);
    wait_until("nothing is left", || count_processes("4791.3") + count_processes("4791.4") == 0);

    let resume = |prompt: &str| {
        let mut command = world.command(&["resume", "last", prompt, "--json"]);
        wait_for_exit(command.env("OPENAI_API_KEY", "sk-test-canary").spawn().unwrap())
    };
    let ran = resume("Go on.");
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let gone = "What it had started in the background no longer runs: `echo up; setsid sleep 4791.3 & sleep 4791.3` \
                (call_id \"c1\"). Start again what you need.";
    let shown = |request: usize| {
        let messages = server.requests()[request].json()["messages"].clone();
        let texts =
            messages.as_array().unwrap().iter().map(|message| message["content"].to_string());
        texts.filter(|text| text.contains(json!(gone).to_string().trim_matches('"'))).count()
    };
    assert_eq!(shown(2), 1, "{}", server.requests()[2].json()["messages"]);
    let output = server.requests()[3].json()["messages"].to_string();
    assert!(output.contains("There is no command with call_id 'c1'"), "{output}");
    // The model is notified once.
    assert_eq!(resume("More.").code, 0);
    assert_eq!(shown(4), 1);
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

#[test]
fn an_answer_waits_for_a_command_that_is_needed() {
    let world = CliFixture::new();
    let wait = r#"{"call_id": "c1", "wait": 60, "until_end": true}"#;
    let server = Server::new([
        start("c1", "read x; echo $x > made", r#", "needed": true"#),
        chat::text("Done."),
        chat::calls(&[
            ("c2", "command_input", r#"{"call_id": "c1", "text": "yes"}"#),
            ("c3", "command_output", wait),
        ]),
        chat::text("Now it is done."),
    ]);
    let ran = world.run_with_server(&server, &YOLO);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(ran.json()["output"], "Now it is done.");
    assert_eq!(world.read("made"), "yes\n");
    assert_eq!(world.journals().matches("\"command_ended\":{").count(), 1);
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
    let shown = server.requests()[2].json()["messages"].to_string();
    assert!(
        shown.contains("[SYSTEM] What was started as needed still runs: `read x; echo $x > made`"),
        "{shown}"
    );
}

/// The answer waits, so that the model does not use up its tries at once.
#[test]
fn the_failure_of_a_needed_command_reaches_a_model_that_does_not_ask() {
    let world = CliFixture::new();
    let server = Server::new([
        start("c1", "sleep 1; echo 2 tests failed; exit 3", r#", "needed": true"#),
        chat::text("All is well."),
        chat::text("Two tests fail."),
    ]);
    let ran = world.run_with_server(&server, &YOLO);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(ran.json()["output"], "Two tests fail.");
    let shown = server.requests()[2].json()["messages"].to_string();
    assert!(shown.contains("(call_id \\\"c1\\\"): exit code 3\\n2 tests failed"), "{shown}");
    assert!(!shown.contains("still runs"), "{shown}");
}

/// The answer is never good: the time of the run ends it, and the command with it.
#[test]
fn an_answer_that_waits_ends_with_the_time_of_the_run() {
    let world = CliFixture::new();
    let server = Server::new([
        start("c1", "sleep 4791.5", r#", "needed": true"#),
        chat::text("Done."),
        chat::text("It still ran."),
    ]);
    let ran = world.run_with_server(&server, &[&YOLO[..], &["--timeout", "3"]].concat());
    assert_eq!(ran.outcome(), outcome(2, "timeout", "partial"), "{}", ran.err);
    wait_until("nothing is left", || count_processes("4791.5") == 0);
}

#[test]
fn an_answer_that_waited_is_not_the_end_of_the_resumed_run() {
    let world = CliFixture::new();
    let server = Server::new([
        start("c1", "sleep 4791.6", r#", "needed": true"#),
        chat::text("It is well."),
        chat::text("It was lost."),
    ]);
    let child = world.command_with_server(&server, &YOLO).spawn().unwrap();
    wait_until("the answer waits, and the command runs", || {
        world.journals().contains("It is well.") && count_processes("4791.6") == 1
    });
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    wait_for_exit(child);
    wait_until("nothing is left", || count_processes("4791.6") == 0);

    let mut command = world.command(&["resume", "last", "--json"]);
    let ran = wait_for_exit(command.env("OPENAI_API_KEY", "sk-test-canary").spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(ran.json()["output"], "It was lost.");
    let shown = server.requests()[2].json()["messages"].to_string();
    assert!(shown.contains("no longer runs: `sleep 4791.6` (call_id \\\"c1\\\")"), "{shown}");
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

/// A change that a command makes while a call waits for it belongs to the session.
#[test]
fn what_is_waited_for_is_undone() {
    let world = CliFixture::new();
    let server = Server::new([
        start("c1", "echo up; read x; echo late > late", r#", "ready_pattern": "up""#),
        chat::calls(&[
            ("c2", "command_input", r#"{"call_id": "c1", "text": "go"}"#),
            ("c3", "command_output", r#"{"call_id": "c1", "wait": 60, "until_end": true}"#),
        ]),
        chat::text("Done."),
    ]);
    let ran = world.run_with_server(&server, &YOLO);
    assert_eq!((ran.code, world.read("late")), (0, "late\n".into()), "{}", ran.err);
    let undone = world.run(&["undo", "last", "--start", "--yes"]);
    assert_eq!((undone.code, world.path("late").exists()), (0, false), "{}", undone.err);
}

#[test]
fn without_commands_there_is_nothing_for_the_background() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Done.")]));
    assert_eq!(world.run_with_server(&server, &["--no-commands"]).code, 0);
    let tools = server.requests()[0].json()["tools"].to_string();
    for name in ["run_command", "command_output", "command_input", "stop_command"] {
        assert!(!tools.contains(name), "{name}");
    }
}
