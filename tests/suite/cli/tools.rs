//! Tools that a model requests over a wire.

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome};
use crate::kit::server::Server;

/// Returns the last messages of a request.
fn last(server: &Server, request: usize, count: usize) -> Vec<serde_json::Value> {
    let messages = server.requests()[request].json()["messages"].as_array().unwrap().clone();
    messages[messages.len() - count..].to_vec()
}

#[test]
fn a_file_is_written_and_the_result_goes_back() {
    let world = CliFixture::new();
    let call = ("c1", "write_file", r#"{"path": "hello.txt", "content": "hi\n"}"#);
    let server = Server::new([chat::calls(&[call]), chat::text("Written.")]);
    let ran = world.run_with_server(&server, &["--mode", "yolo", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(world.read("hello.txt"), "hi\n");
    let json = ran.json();
    assert_eq!(json["files_modified"], json!([{"path": "hello.txt", "action": "created"}]));
    assert_eq!((&json["steps"], &json["llm_calls"]), (&json!(1), &json!(2)));
    assert_eq!(json["tools_used"][0]["success"], true);
    let [call, result] = &last(&server, 1, 2)[..] else { panic!() };
    assert_eq!(call["tool_calls"][0]["id"], "c1");
    assert_eq!((&result["role"], &result["tool_call_id"]), (&json!("tool"), &json!("c1")));
}

/// The first command starts, and the second one starts before the first has ended; the third one may write.
#[test]
fn commands_that_only_read_run_side_by_side() {
    let world = CliFixture::new();
    let command = |line: &str| json!({ "command": line }).to_string();
    let (read, write) = (command("sleep 2"), command("sleep 0.3; touch made"));
    let calls =
        [("a", "run_command", &*read), ("b", "run_command", &*read), ("c", "run_command", &*write)];
    let server = Server::new([chat::calls(&calls), chat::text("Done.")]);
    let ran = world.run_with_server(&server, &["--mode", "yolo", "--output-format", "stream-json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let kinds: Vec<String> =
        ran.lines().iter().map(|line| line["type"].as_str().unwrap().to_owned()).collect();
    let calls: Vec<&String> = kinds.iter().filter(|kind| kind.starts_with("tool_call_")).collect();
    let (start, end) = ("tool_call_start", "tool_call_end");
    assert_eq!(calls, [start, start, end, end, start, end]);
}

/// A link is another name of the file, and both changes are made.
#[test]
fn changes_of_one_file_by_two_names_run_in_call_order() {
    let world = CliFixture::new();
    world.write("real/a.txt", "one");
    std::os::unix::fs::symlink("a.txt", world.path("real/link")).unwrap();
    std::os::unix::fs::symlink("real", world.path("folder")).unwrap();
    let edit = |path: &str, old: &str, new: &str| {
        format!(
            "{{ name = \"edit_file\", arguments = {{ path = \"{path}\", old_str = \"{old}\", new_str = \"{new}\" }} }}"
        )
    };
    let calls = [
        edit("real/a.txt", "one", "two"),
        edit("real/link", "two", "three"),
        edit("folder/a.txt", "three", "four"),
    ];
    let script = format!("[[turn]]\ncalls = [{}]\n[[turn]]\ntext = \"d\"\n", calls.join(", "));
    let ran = world.run_script(&script, &["--mode", "yolo"]);
    assert_eq!((ran.code, &*world.read("real/a.txt")), (0, "four"), "{}", ran.err);
}

#[test]
fn parallel_reads_are_answered_in_call_order() {
    let world = CliFixture::new();
    world.write("a", "first\n").write("b", "second\n").write("c", "third\n");
    let calls = ["a", "b", "c"].map(|name| (name, format!("{{\"path\": \"{name}\"}}")));
    let calls: Vec<_> = calls.iter().map(|(id, args)| (*id, "read_file", args.as_str())).collect();
    let server = Server::new([chat::calls(&calls), chat::text("Read.")]);
    assert_eq!(world.run_with_server(&server, &[]).code, 0);
    let results = last(&server, 1, 3);
    let text = |index: usize| results[index]["content"].as_str().unwrap().to_owned();
    assert!(text(0).contains("first") && text(1).contains("second") && text(2).contains("third"));
    assert_eq!([0, 1, 2].map(|index| results[index]["tool_call_id"].clone()), ["a", "b", "c"]);
}

#[test]
fn an_unknown_tool_and_malformed_arguments_are_answered_and_the_run_goes_on() {
    let world = CliFixture::new();
    let calls =
        [("c1", "fly", "{}"), ("c2", "read_file", "{\"path\": "), ("c3", "read_file", "{}")];
    let server = Server::new([chat::calls(&calls), chat::text("I see.")]);
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"));
    let results = last(&server, 1, 3);
    let text = |index: usize| results[index]["content"].as_str().unwrap().to_owned();
    assert!(text(0).starts_with("Tool 'fly' not found. Available tools: "), "{}", text(0));
    assert!(text(1).starts_with("Invalid arguments for read_file"), "{}", text(1));
    assert!(text(2).contains("path"), "{}", text(2));
}

/// Without a terminal a confirmation is refused at once.
#[test]
fn a_call_that_needs_a_confirmation_is_refused_with_how_to_allow_it() {
    let world = CliFixture::new();
    let call = ("c1", "write_file", r#"{"path": "x", "content": ""}"#);
    let server = Server::new([chat::calls(&[call]), chat::text("I could not.")]);
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.code, 0);
    assert!(!world.path("x").exists());
    assert_eq!(ran.json()["denied"][0]["tool"], "write_file");
    assert!(last(&server, 1, 1)[0]["content"].as_str().unwrap().contains("--mode yolo"));
}

#[test]
fn a_dry_run_changes_nothing_and_lists_what_it_would_have_done() {
    let world = CliFixture::new();
    let calls = [
        ("c1", "write_file", r#"{"path": "x", "content": ""}"#),
        ("c2", "run_command", r#"{"command": "touch y"}"#),
    ];
    let server = Server::new([chat::calls(&calls), chat::text("Done.")]);
    let ran = world.run_with_server(&server, &["--mode", "yolo", "--dry-run"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!world.path("x").exists() && !world.path("y").exists());
    assert!(ran.out.contains("- write_file: ") && ran.out.contains("touch y"), "{}", ran.out);
}

#[test]
fn a_command_has_no_key_in_its_environment() {
    let world = CliFixture::new();
    let call = (
        "c1",
        "run_command",
        r#"{"command": "env > env.txt; cat /proc/$PPID/environ >> env.txt; true"}"#,
    );
    let server = Server::new([chat::calls(&[call]), chat::text("Done.")]);
    assert_eq!(world.run_with_server(&server, &["--mode", "yolo"]).code, 0);
    assert!(!world.read("env.txt").contains("canary"));
}

/// Fault X1: files that the user's own programs run or obey are not written in any mode, unless nothing is confined.
#[test]
fn no_tool_writes_the_hooks_or_the_settings_of_a_project() {
    let world = CliFixture::new();
    world.write(".git/config", "[core]\n").write(".git/hooks/old", "");
    let calls = [".git/config", ".git/hooks/pre-commit", ".architect/config.toml"]
        .map(|path| (path, format!(r#"{{"path": "{path}", "content": "evil"}}"#)));
    let calls = calls.each_ref().map(|(id, args)| (*id, "write_file", args.as_str()));
    let ask = |args: &[&str]| {
        let server = Server::new([chat::calls(&calls), chat::text("I see.")]);
        let args = [&["--mode", "yolo", "--allow", "write_file", "--json"], args].concat();
        (world.run_with_server(&server, &args), server)
    };
    let (ran, server) = ask(&[]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(ran.json()["denied"].as_array().unwrap().len(), 3);
    for result in last(&server, 1, 3) {
        let output = result["content"].as_str().unwrap();
        assert!(output.starts_with("Denied: '.") && output.contains("--sandbox off"), "{output}");
    }
    assert_eq!(world.read(".git/config"), "[core]\n");
    assert!(!world.path(".git/hooks/pre-commit").exists() && !world.path(".architect").exists());
    let (ran, _) = ask(&["--sandbox", "off"]);
    assert_eq!(ran.json()["denied"], json!([]), "{}", ran.err);
    assert_eq!(world.read(".architect/config.toml"), "evil");
}

#[test]
fn an_answer_that_a_quality_gate_never_accepts_is_no_success() {
    let world = CliFixture::new();
    let gate = |required: bool| {
        format!(
            "guardrails.quality_gates=[{{ name = 'no', command = 'echo; echo last; false', required = {required} }}]"
        )
    };
    let server = Server::repeating([chat::text("Done.")]);
    let ran = world.run_with_server(&server, &["--json", "--set", &gate(true)]);
    assert_eq!(ran.outcome(), outcome(2, "checks_failed", "partial"), "{}", ran.err);
    assert_eq!((ran.json()["output"].as_str(), server.requests().len()), (Some("Done."), 6));
    assert_eq!(ran.json()["error"], "gate no: exit code 1: last");
    let ran = world.run_with_server(&server, &["--json", "--set", &gate(false)]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
}

#[test]
fn a_quality_gate_sends_the_answer_back_until_it_passes() {
    let world = CliFixture::new();
    let gate = "guardrails.quality_gates=[{ name = 'there', command = 'test -f x || (echo no x; false)' }]";
    let call = ("c1", "write_file", r#"{"path": "x", "content": ""}"#);
    let server = Server::new([chat::text("Done."), chat::calls(&[call]), chat::text("Now it is.")]);
    let ran = world.run_with_server(&server, &["--mode", "yolo", "--set", gate]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Now it is.\n"), "{}", ran.err);
    assert!(last(&server, 1, 1)[0]["content"].as_str().unwrap().contains("no x"));
}

/// A rule for a tool that does not exist would deny nothing.
#[test]
fn a_rule_for_an_unknown_tool_is_an_error() {
    let (world, server) = (CliFixture::new(), Server::repeating([chat::text("Done.")]));
    let ran = world.run_with_server(&server, &["--deny", "run_comand(*)"]);
    let reported = "unknown tool `run_comand`, did you mean `run_command`?";
    assert!(ran.code == 3 && ran.err.contains(reported), "{} {}", ran.code, ran.err);
    assert_eq!(world.run_with_server(&server, &["--deny", "mcp_git_*"]).code, 0);
}
