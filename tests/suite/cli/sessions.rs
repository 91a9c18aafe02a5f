//! Sessions: stored, listed, resumed.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome, wait_for_exit, wait_until};
use crate::kit::server::{ScriptedReply, Server};

#[test]
fn a_session_is_stored_listed_shown_replayed_and_removed() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let id = world.run_with_server(&server, &["--json"]).json()["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let list = world.run(&["sessions", "--json"]).json();
    assert_eq!((&list[0]["session_id"], &list[0]["stop_reason"]), (&json!(id), &json!("llm_done")));
    assert!(world.run(&["sessions", "show", "last"]).out.contains("Fine."));
    let found = world.run(&["sessions", "search", "fine", "--json"]).json();
    assert_eq!(found[0]["session_id"], json!(id));
    let verified = world.run(&["replay", &id[..30], "--verify"]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    let trace = world.run(&["trace", "last", "--json"]).json();
    assert_eq!((&trace["session_id"], &trace["llm_calls"]), (&json!(id), &json!(1)));
    assert_eq!(world.run(&["trace", "last", "--html", "trace.html"]).code, 0);
    assert!(world.read("trace.html").contains("Fine."));
    assert_eq!(world.run(&["sessions", "rm", &id]).code, 0);
    assert_eq!(world.run(&["sessions", "--json"]).json(), json!([]));
    let gone = world.run(&["sessions", "show", &id]);
    assert_eq!(gone.code, 3, "{}", gone.err);
}

#[test]
fn a_damaged_session_does_not_verify() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let id = world.run_with_server(&server, &["--json"]).json()["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = world.home().join(format!(".local/state/architect/sessions/{id}.jsonl"));
    let journal = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, journal.replacen("Fine.", "Fire.", 1)).unwrap();
    let replayed = world.run(&["replay", &id]);
    assert!(replayed.code == 1 && replayed.out.contains("checksum"), "{}", replayed.out);
    assert_eq!(world.run(&["replay", &id, "--verify"]).code, 1);
}

#[test]
fn an_ephemeral_run_leaves_nothing_behind() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    assert_eq!(world.run_with_server(&server, &["--ephemeral"]).code, 0);
    assert_eq!(std::fs::read_dir(world.home()).unwrap().count(), 0);
}

#[test]
fn a_resumed_session_has_the_whole_conversation() {
    let world = CliFixture::new();
    let server = Server::new([chat::text("One."), chat::text("Two.")]);
    assert_eq!(world.run_with_server(&server, &[]).code, 0);
    let mut resume = world.command(&["resume", "last", "And now?", "--json"]);
    let ran = wait_for_exit(resume.env("OPENAI_API_KEY", "k").spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let messages = server.requests()[1].json()["messages"].clone();
    let texts: Vec<_> = messages.as_array().unwrap()[1..]
        .iter()
        .map(|message| message["content"].clone())
        .collect();
    assert_eq!(texts, ["Do it.", "One.", "And now?"]);
}

/// Fault S1.
#[test]
fn a_killed_session_goes_on_and_no_tool_runs_twice() {
    let world = CliFixture::new();
    let call = ("c", "run_command", r#"{"command": "echo ran >> log"}"#);
    let server = Server::new([chat::calls(&[call]), ScriptedReply::silence(), chat::text("Done.")]);
    let child = world.command_with_server(&server, &["--mode", "yolo"]).spawn().unwrap();
    server.wait_for(2);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    wait_for_exit(child);
    let mut resume = world.command(&["resume", "last", "--json"]);
    let ran = wait_for_exit(resume.env("OPENAI_API_KEY", "k").spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(world.read("log"), "ran\n");
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

#[test]
fn a_fork_leaves_the_original_as_it_is() {
    let world = CliFixture::new();
    let server = Server::new([chat::text("One."), chat::text("Other.")]);
    let first = world.run_with_server(&server, &["--json"]).json();
    let mut fork = world.command(&["fork", "last", "Try again.", "--json"]);
    let ran = wait_for_exit(fork.env("OPENAI_API_KEY", "k").spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(ran.err.contains("Session ") && !ran.err.contains("Session resumed"), "{}", ran.err);
    assert_ne!(ran.json()["session_id"], first["session_id"]);
    let original = world.run(&["sessions", "show", first["session_id"].as_str().unwrap()]);
    assert!(original.out.contains("One.") && !original.out.contains("Other."));
}

#[test]
fn a_running_session_is_steered_from_outside_and_is_busy() {
    let world = CliFixture::new();
    let call = ("c", "run_command", r#"{"command": "until test -f go; do sleep 0.02; done"}"#);
    let server = Server::new([chat::calls(&[call]), chat::text("As you say.")]);
    let child = world.command_with_server(&server, &["--mode", "yolo"]).spawn().unwrap();
    server.wait_for(1);
    let busy = world.run(&["resume", "last"]);
    assert_eq!(busy.code, 3);
    assert!(busy.err.contains("is busy") && busy.err.contains("architect steer"), "{}", busy.err);
    let steered = world.run(&["steer", "last", "Be brief."]);
    assert_eq!(steered.code, 0, "{}", steered.err);
    world.write("go", "");
    assert_eq!(wait_for_exit(child).code, 0);
    let messages = server.requests()[1].json()["messages"].clone();
    let last = messages.as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(last, "[STEERING] Be brief.");
    let idle = world.run(&["steer", "last", "Anybody?"]);
    assert_eq!(idle.code, 3, "{}", idle.err);
}

#[test]
fn a_session_is_exported_and_imported_elsewhere() {
    let (world, other) = (CliFixture::new(), CliFixture::new());
    let server = Server::new([chat::text("Fine.")]);
    assert_eq!(world.run_with_server(&server, &[]).code, 0);
    let exported = world.run(&["sessions", "export", "last"]);
    other.write("session.jsonl", &exported.out);
    let imported = other.run(&["sessions", "import", "session.jsonl", "--json"]);
    assert_eq!(imported.code, 0, "{}", imported.err);
    assert!(other.run(&["sessions", "show", "last"]).out.contains("Fine."));
    let removed = other.run(&["cleanup", "--older-than", "0", "--json"]).json();
    assert_eq!(removed["removed"].as_array().unwrap().len(), 1);
    wait_until("it is gone", || other.run(&["sessions", "--json"]).json() == json!([]));
}
