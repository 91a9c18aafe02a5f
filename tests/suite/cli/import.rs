//! Sessions from another machine.

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit};
use crate::kit::server::Server;

/// Returns a world with an imported session, and the name of the session. Its stored options ask for everything that an
/// attacker may want.
fn with_session(theirs: &Server) -> (CliFixture, String) {
    let (world, other) = (CliFixture::new(), CliFixture::new());
    let hook = "hooks.session_start=[{name='x', command='touch \"$HOME/RAN\"'}]";
    let args = ["--set", hook, "--mode", "yolo", "--sandbox", "off", "--agent", "review", "--json"];
    let made = other.run_with_server(theirs, &args);
    assert_eq!(made.outcome(), outcome(0, "llm_done", "success"), "{}", made.err);
    assert!(other.home().join("RAN").exists());
    world.write("session.jsonl", &other.run(&["sessions", "export", "last"]).out);
    let imported = world.run(&["sessions", "import", "session.jsonl", "--json"]);
    let session = imported.json()["session_id"].as_str().unwrap().to_owned();
    (world, session)
}

/// Runs a command whose model, if it is to have one of its own, is this server.
fn exported(world: &CliFixture, ours: Option<&Server>, args: &[&str]) -> CommandResult {
    let base = ours.map(|server| server.url("/v1"));
    let model = ["--model", "openai-chat/ours", "--api-base", base.as_deref().unwrap_or_default()];
    let args = [args, if base.is_some() { &model[..] } else { &[] }, &["--json"]].concat();
    wait_for_exit(world.command(&args).env("OPENAI_API_KEY", "sk-test-canary").spawn().unwrap())
}

#[test]
fn the_options_of_an_imported_session_do_not_hold() {
    let theirs = Server::new([chat::text("One.")]);
    let (world, session) = with_session(&theirs);
    let bare = exported(&world, None, &["resume", &session, "Go on."]);
    assert_eq!(bare.code, 3, "it has no model of its own: {}", bare.err);
    let server = Server::new([chat::text("Two."), chat::text("Three.")]);
    let ran = exported(&world, Some(&server), &["resume", &session, "Go on."]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let reported: Vec<&str> =
        ran.err.lines().filter(|line| line.contains("was imported")).collect();
    assert_eq!(reported.len(), 1, "{}", ran.err);
    for name in ["hooks.session_start", "sandbox.mode", "llm.api_base", "--agent", "--set"] {
        assert!(reported[0].contains(name), "{name}: {}", reported[0]);
    }
    assert!(!world.home().join("RAN").exists());
    assert_eq!((theirs.requests().len(), server.requests().len()), (1, 1));
    let again = exported(&world, None, &["resume", &session, "And further."]);
    assert_eq!(
        again.outcome(),
        outcome(0, "llm_done", "success"),
        "it remembers ours: {}",
        again.err
    );
    assert!(!again.err.contains("was imported"), "{}", again.err);
}

#[test]
fn a_fork_of_an_imported_session_is_an_imported_one() {
    let theirs = Server::new([chat::text("One.")]);
    let (world, session) = with_session(&theirs);
    let early = format!("{session}@1");
    let copy = world.run(&["fork", &session, "--only"]).out.trim().to_owned();
    let server = Server::new([chat::text("Two."), chat::text("Three.")]);
    for args in [["resume", &copy, "Go on."], ["fork", &early, "Go on."]] {
        let ran = exported(&world, Some(&server), &args);
        assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
        assert!(ran.err.contains("was imported"), "{}", ran.err);
        assert!(!world.home().join("RAN").exists());
    }
    assert_eq!((theirs.requests().len(), server.requests().len()), (1, 2));
}

#[test]
fn an_imported_session_works_in_the_folder_that_the_user_is_in_with_a_prompt_of_ours() {
    let theirs = Server::new([chat::text("One.")]);
    let (world, session) = with_session(&theirs);
    world.write("session.jsonl", "").write("AGENTS.md", "Ours.");
    let server =
        Server::new([chat::calls(&[("c", "list_files", r#"{"path": "."}"#)]), chat::text("Two.")]);
    let ran = exported(&world, Some(&server), &["resume", &session, "Go on.", "--agent", "review"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let messages = server.requests()[1].json()["messages"].clone();
    let messages = messages.as_array().unwrap();
    assert!(messages[0]["content"].as_str().unwrap().contains("Ours."), "{}", messages[0]);
    let listed = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(listed.contains("AGENTS.md"), "{listed}");
}
