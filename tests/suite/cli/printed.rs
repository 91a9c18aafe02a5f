//! Output of commands besides the result of a run: an empty list is reported as empty, and no text of a session is a
//! command to the CI system that reads it.

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};
use crate::kit::server::Server;

const COMMANDS: &str = r#"
[[turn]]
text = """
::add-mask::x
 ::stop-commands::t
a ##[add-path]b ##vso[task.setvariable]c
Fine."""
"#;

fn in_ci(world: &CliFixture, args: &[&str]) -> CommandResult {
    wait_for_exit(world.command(args).env("GITHUB_ACTIONS", "true").spawn().unwrap())
}

fn assert_inert(text: &str, case: &str) {
    for line in text.lines() {
        assert!(!line.trim_start().starts_with("::"), "{case}: {line}");
        assert!(!line.contains("##[") && !line.contains("##vso["), "{case}: {line}");
    }
}

#[test]
fn a_list_without_sessions_says_so() {
    let world = CliFixture::new();
    for args in [&["sessions"][..], &["sessions", "list"]] {
        assert_eq!(world.run(args).out, "no sessions\n");
    }
    assert_eq!(world.run(&["sessions", "--json"]).json(), json!([]));
    assert_eq!(world.run_script(COMMANDS, &[]).code, 0);
    assert!(world.run(&["sessions", "list", "--limit", "0"]).out.starts_with("session "));
}

#[test]
fn no_text_of_a_stored_session_is_a_command_to_a_ci_system() {
    let world = CliFixture::new();
    assert_eq!(
        in_ci(&world, &["run", "::error::y", "--model", &world.script_model(COMMANDS)]).code,
        0
    );
    for args in [
        &["sessions", "show", "last"][..],
        &["sessions", "show", "last", "--json"],
        &["sessions", "search", "Fine"],
        &["sessions", "export", "last"],
        &["sessions", "list"],
        &["trace", "last"],
        &["replay", "last"],
    ] {
        let ran = in_ci(&world, args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        assert_inert(&ran.out, &format!("{args:?}"));
        assert_inert(&ran.err, &format!("{args:?}"));
    }
    // An export is unchanged.
    let other = CliFixture::new();
    other.write("session.jsonl", &in_ci(&world, &["sessions", "export", "last"]).out);
    assert_eq!(other.run(&["sessions", "import", "session.jsonl"]).code, 0);
    let text = "a ##[add-path]b ##vso[task.setvariable]c";
    assert!(other.run(&["sessions", "show", "last"]).out.contains(text));
    assert_eq!(other.run(&["replay", "last", "--verify"]).code, 0);
}

#[test]
fn a_recording_without_requests_is_reported_as_empty() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let ran = world.run_script(COMMANDS, &["--record", "run.jsonl"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("the recording run.jsonl is empty"), "{}", ran.err);
    let ran = world.run_with_server(&server, &["--record", "run.jsonl"]);
    assert!(ran.code == 0 && !ran.err.contains("is empty"), "{}", ran.err);
}
