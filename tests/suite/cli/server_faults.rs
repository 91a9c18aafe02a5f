//! Servers that misbehave.

use std::time::Duration;

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

/// Options for two retries with short waits, unless the server asks for longer ones.
const QUICK: [&str; 2] = ["--set", "llm.retries=2"];

#[test]
fn a_wrong_key_is_exit_code_4_and_is_not_tried_again() {
    let body = r#"{"error": {"message": "Incorrect API key provided: sk-test-canary"}}"#;
    let (world, server) =
        (CliFixture::new(), Server::repeating([ScriptedReply::with_length(401, body)]));
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.outcome(), outcome(4, "llm_error", "failed"));
    assert!(ran.json()["output"].as_str().unwrap().starts_with("Unrecoverable LLM error: "));
    assert_eq!(server.requests().len(), 1);
    assert!(!ran.out.contains("canary") && !ran.err.contains("canary"), "{}{}", ran.out, ran.err);
}

#[test]
fn without_a_key_nothing_begins() {
    let world = CliFixture::new();
    let ran = world.run(&["run", "Do it.", "--model", "openai-chat/gpt-4o"]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("OPENAI_API_KEY") && ran.err.contains("hint: "), "{}", ran.err);
}

#[test]
fn a_server_says_how_long_to_wait() {
    let wait = ScriptedReply::with_headers(429, &[("retry-after", "1")], "{}");
    let (world, server) = (CliFixture::new(), Server::new([wait, chat::text("Fine.")]));
    let ran = world.run_with_server(&server, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Fine.\n"), "{}", ran.err);
    let requests = server.requests();
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(1));
}

#[test]
fn a_server_that_is_down_is_asked_once_more_for_each_retry() {
    let (world, server) =
        (CliFixture::new(), Server::repeating([ScriptedReply::with_length(503, "{}")]));
    let ran = world.run_with_server(&server, &[&QUICK[..], &["--json"]].concat());
    assert_eq!(ran.outcome(), outcome(1, "llm_error", "failed"));
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_server_that_never_answers_is_exit_code_5() {
    let (world, server) = (CliFixture::new(), Server::repeating([ScriptedReply::silence()]));
    let args = ["--json", "--set", "llm.timeout=0.2", "--set", "llm.retries=1"];
    let ran = world.run_with_server(&server, &args);
    assert_eq!(ran.outcome(), outcome(5, "llm_error", "failed"), "{}", ran.err);
    assert_eq!(server.wait_for(2).len(), 2);
}

/// A stream that just ends is no reply: nothing of it counts, and its tool calls don't run.
#[test]
fn a_cut_stream_is_retried_whole() {
    let world = CliFixture::new();
    let call = r#"{"tool_calls": [{"index": 0, "id": "c", "function": {"name": "write_file",
        "arguments": "{\"path\": \"x\", \"content\": \"\"}"}}]}"#;
    let call = serde_json::from_str(call).unwrap();
    let cut = ScriptedReply::open_stream().chunk(&chat::delta(&call)).close();
    let server = Server::new([cut, chat::text("Fine.")]);
    let ran = world.run_with_server(&server, &["--mode", "yolo", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"));
    assert!(!world.path("x").exists());
    assert_eq!(server.requests()[0].body, server.requests()[1].body);
    assert_eq!(ran.json()["steps"], 0);
}

/// A provider charges for the streamed output, even if the end is missing.
#[test]
fn a_cut_stream_counts_with_what_had_come_of_it() {
    let piece = chat::delta(&json!({"content": "x".repeat(700)}));
    let call =
        json!({"index": 0, "id": "c", "function": {"name": "a", "arguments": "y".repeat(350)}});
    let call = chat::delta(&json!({"tool_calls": [call]}));
    let cut = ScriptedReply::open_stream().chunk(&piece).chunk(&call).close();
    let world = CliFixture::new();
    let server = Server::new([cut, chat::text("Fine."), chat::text("Still fine.")]);
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json()["usage"]["output_tokens"], 300 + chat::USAGE.1);
    let mut again = world.command(&["resume", "last", "And now?", "--json"]);
    let again =
        wait_for_exit(again.env("OPENAI_API_KEY", "sk-test-canary").spawn().unwrap()).json();
    assert_eq!(again["usage"]["output_tokens"], 300 + 2 * chat::USAGE.1);
}

#[test]
fn the_timeout_is_hard() {
    let (world, server) = (CliFixture::new(), Server::repeating([ScriptedReply::silence()]));
    let ran = world.run_with_server(&server, &["--timeout", "2", "--json"]);
    assert_eq!(ran.outcome(), outcome(2, "timeout", "partial"));
    assert!(ran.took < Duration::from_millis(4_500), "{:?}", ran.took);
}

#[test]
fn a_command_does_not_outlive_the_timeout() {
    let world = CliFixture::new();
    let call = ("c", "run_command", r#"{"command": "sleep 4733.1"}"#);
    let server = Server::new([chat::calls(&[call]), ScriptedReply::silence()]);
    let ran = world.run_with_server(&server, &["--timeout", "2", "--mode", "yolo", "--json"]);
    assert_eq!(ran.outcome(), outcome(2, "timeout", "partial"));
    // A command that ignores its end takes two seconds more.
    assert!(ran.took < Duration::from_millis(3_900), "{:?}", ran.took);
    assert_eq!(crate::kit::system::count_processes("4733.1"), 0);
}

/// A limit on the size of files is an error with a hint, and not the end by a signal.
#[test]
fn a_file_that_may_not_grow_ends_the_run_with_an_error() {
    let (world, server) = (CliFixture::new(), Server::repeating([chat::text("Fine.")]));
    let task = world.command_with_server(&server, &["--json"]);
    let words: Vec<_> = std::iter::once(task.get_program()).chain(task.get_args()).collect();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -f 4; exec \"$0\" \"$@\""]).args(words);
    shell.current_dir(world.path("")).env("HOME", world.home());
    let piped = std::process::Stdio::piped;
    let ran = wait_for_exit(shell.stdout(piped()).stderr(piped()).spawn().unwrap());
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(ran.json()["status"], "failed");
}

/// Some servers drop the beginning of a long request without an error; the usage they report shows it.
#[test]
fn a_server_that_reads_only_a_part_of_the_request_is_reported() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Fine.")]));
    let base = server.url("/v1");
    let args = ["run", "Do it.", "--model", "ollama/fake", "--api-base", &base];
    let ran = world.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(server.requests()[0].body.len() as u64 > 12 * chat::USAGE.0);
    assert!(ran.err.contains("it drops the beginning silently"), "{}", ran.err);
}
