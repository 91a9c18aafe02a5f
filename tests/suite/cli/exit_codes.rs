//! Ends of runs, and their exit codes.

use std::time::Duration;

use serde_json::json;
use wait_timeout::ChildExt;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_until};
use crate::kit::server::{ScriptedReply, Server};
use crate::kit::system::count_processes;

const READ: (&str, &str, &str) = ("c", "read_file", r#"{"path": "a"}"#);

fn finished(text: &str, reason: &str) -> ScriptedReply {
    ScriptedReply::stream([
        chat::delta(&json!({"content": text})),
        chat::finish(reason),
        chat::end(),
    ])
}

#[test]
fn after_the_last_step_the_model_summarizes_without_tools() {
    let world = CliFixture::new();
    world.write("a", "1").write("b", "2");
    let server = Server::new([chat::calls(&[READ]), chat::text("I read a.")]);
    let ran = world.run_with_server(&server, &["--max-steps", "1", "--json"]);
    assert_eq!(ran.outcome(), outcome(2, "max_steps", "partial"));
    assert_eq!(ran.json()["output"], "I read a.");
    let closing = server.requests()[1].json();
    assert!(closing.get("tools").is_none_or(|tools| tools == &json!([])), "{closing}");
    let messages = closing["messages"].as_array().unwrap();
    let text = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(text.starts_with("[SYSTEM] "), "{text}");
}

/// Zero is a limit, and no limit is exceeded.
#[test]
fn no_step_is_made_when_none_is_allowed() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Nothing was done.")]));
    let ran = world.run_with_server(&server, &["--max-steps", "0", "--json"]);
    assert_eq!(ran.outcome(), outcome(2, "max_steps", "partial"));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_partial_run_can_have_another_exit_code() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Nothing.")]));
    let ran = world.run_with_server(&server, &["--max-steps", "0", "--exit-code-on-partial", "0"]);
    assert_eq!(ran.code, 0);
}

#[test]
fn a_reply_that_is_too_long_is_continued_and_at_last_truncated() {
    let world = CliFixture::new();
    let server = Server::new([finished("one ", "length"), finished("two", "stop")]);
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"));
    let messages = server.requests()[1].json()["messages"].clone();
    let last = messages.as_array().unwrap().last().unwrap().clone();
    assert!(last["content"].as_str().unwrap().contains("Continue from where you left off."));
    let server = Server::repeating([finished("more ", "length")]);
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.outcome(), outcome(2, "truncated", "partial"));
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn an_empty_reply_is_asked_for_again_twice() {
    let (world, server) = (CliFixture::new(), Server::repeating([finished("", "stop")]));
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.outcome(), outcome(2, "empty_response", "partial"));
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_filtered_reply_is_refused() {
    let (world, server) = (CliFixture::new(), Server::new([finished("", "content_filter")]));
    assert_eq!(
        world.run_with_server(&server, &["--json"]).outcome(),
        outcome(2, "refused", "partial")
    );
}

#[test]
fn the_same_turn_again_and_again_is_a_loop() {
    let world = CliFixture::new();
    world.write("a", "1");
    let mut replies = vec![chat::calls(&[READ]); 5];
    replies.push(chat::text("I am stuck."));
    let server = Server::new(replies);
    let ran = world.run_with_server(&server, &["--json"]);
    assert_eq!(ran.outcome(), outcome(2, "loop_detected", "partial"));
    assert_eq!(ran.json()["output"], "I am stuck.");
}

#[test]
fn a_budget_is_reserved_before_the_call() {
    let world = CliFixture::new();
    let script = "price = { input = 1000000.0, output = 1000000.0 }\n[[turn]]\ntext = 'Expensive.'";
    let ran = world.run_script(script, &["--budget", "0.01", "--json"]);
    assert_eq!(ran.outcome(), outcome(2, "budget_exceeded", "partial"));
    assert_eq!((&ran.json()["llm_calls"], &ran.json()["cost"]), (&json!(0), &json!(0.0)));
}

#[test]
fn a_budget_needs_a_price() {
    let (world, server) = (CliFixture::new(), Server::new([]));
    let ran = world.run_with_server(&server, &["--budget", "1"]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("hint: ") && server.requests().is_empty(), "{}", ran.err);
}

/// Returns the result of a run with a time limit of a second that ends soon after. On a busy machine not each run does.
fn run_for_a_second(world: &CliFixture, set: &str) -> CommandResult {
    let server = Server::repeating([ScriptedReply::silence()]);
    let run = |_| world.run_with_server(&server, &["--timeout", "1", "--json", "--set", set]);
    let soon = |ran: &CommandResult| ran.took < Duration::from_millis(2_500);
    (0..5).map(run).find(soon).expect("none of five runs ends soon after its time")
}

#[test]
fn hooks_at_the_end_of_a_run_get_no_more_time_than_the_run() {
    let world = CliFixture::new();
    for (command, sleeps) in [("sleep 4734.1", "4734.1"), ("trap '' TERM; sleep 4734.2", "4734.2")]
    {
        let hook = format!("hooks.session_end=[{{ name = 'slow', command = \"{command}\" }}]");
        let ran = run_for_a_second(&world, &hook);
        assert_eq!(ran.outcome(), outcome(2, "timeout", "partial"), "{}", ran.err);
        assert!(ran.err.contains("before all hooks of its end are"), "{}", ran.err);
        wait_until("nothing is left", || count_processes(sleeps) == 0);
    }
}

#[test]
fn hooks_at_the_end_of_a_run_take_what_is_left_of_its_time() {
    let (world, server) = (CliFixture::new(), Server::new([chat::text("Done.")]));
    let hook = "hooks.session_end=[{ name = 'slow', command = 'sleep 0.7; touch reported' }]";
    let ran = world.run_with_server(&server, &["--timeout", "30", "--json", "--set", hook]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(world.path("reported").exists());
}

#[test]
fn a_server_that_says_nothing_takes_no_more_time_than_the_run() {
    let world = CliFixture::new();
    for (command, sleeps) in
        [("exec sleep 4734.3", "4734.3"), ("trap '' TERM; sleep 4734.4", "4734.4")]
    {
        let silent =
            format!("mcp.servers=[{{ name = 's', command = 'sh', args = ['-c', \"{command}\"] }}]");
        let ran = run_for_a_second(&world, &silent);
        assert_eq!(ran.outcome(), outcome(2, "timeout", "partial"), "{}", ran.err);
        wait_until("nothing is left", || count_processes(sleeps) == 0);
    }
}

/// A text that does not fit into an unread pipe.
fn long() -> String {
    format!("[[turn]]\ntext = '{}'", "word ".repeat(60_000))
}

#[test]
fn a_reader_who_stalls_is_waited_for_as_long_as_the_run_may_last() {
    let world = CliFixture::new();
    let model = world.script_model(&long());
    let args = ["run", "x", "--model", &model, "--json", "--timeout", "1", "--quiet"];
    let mut child = world.command(&args).spawn().unwrap();
    let status = child.wait_timeout(Duration::from_secs(20)).unwrap();
    let _ = child.kill();
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    let mut output = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut output).unwrap();
    assert!(output.contains("did not read it in time"), "{output}");
}

#[test]
fn a_reader_who_is_slow_gets_everything() {
    let world = CliFixture::new();
    let model = world.script_model(&long());
    let child = world.command(&["run", "x", "--model", &model, "--json"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let ran = crate::kit::cli::wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(ran.json()["output"].as_str().unwrap().len() > 290_000);
}

#[test]
fn a_server_that_hangs_leaves_time_for_the_run() {
    let world = CliFixture::new();
    let servers = "mcp.servers=[{ name = 's', command = 'sleep', args = ['60'] }]";
    let script = "[[turn]]\ntext = \"Fine.\"\n";
    let ran = world.run_script(script, &["--timeout", "10", "--set", servers, "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(ran.took < Duration::from_secs(10), "{:?}", ran.took);
}
