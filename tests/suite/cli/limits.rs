//! Limits that end a run early: the effective limit, the closing request, and the log.

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome};
use crate::kit::server::Server;

/// A model with a price, so that it can have a budget.
const PRICED: &str = "price = { input = 1.0, output = 1.0 }\n[[turn]]\ntext = \"so far\"\n";

#[test]
fn limits_of_zero_count_in_the_order_of_the_watchdogs() {
    let steps = ["--max-steps", "0"];
    let budget = ["--budget", "0"];
    let tokens = ["--max-tokens", "0"];
    let time = ["--timeout", "0"];
    for (limits, reason, calls) in [
        (vec![steps, budget, time], "max_steps", 0),
        (vec![steps, time], "max_steps", 0),
        (vec![steps], "max_steps", 1),
        (vec![budget, time], "budget_exceeded", 0),
        (vec![tokens, time], "budget_exceeded", 0),
        (vec![budget], "budget_exceeded", 0),
        (vec![tokens], "budget_exceeded", 0),
        (vec![time], "timeout", 0),
    ] {
        let limits = limits.concat();
        let ran = CliFixture::new().run_script(PRICED, &[&limits[..], &["--json"]].concat());
        assert_eq!(ran.outcome(), outcome(2, reason, "partial"), "{limits:?} {}", ran.err);
        assert_eq!(ran.json()["llm_calls"], calls, "{limits:?} {}", ran.err);
        // The log shows the final summary, or why there is none.
        assert_eq!(ran.err.contains("Final summary →"), calls == 1, "{}", ran.err);
        assert_eq!(ran.err.contains("ends without a final summary"), calls == 0, "{}", ran.err);
        assert!(!ran.err.contains("used up"), "nothing was spent: {}", ran.err);
    }
}

#[test]
fn a_file_larger_than_the_window_is_shortened_for_the_closing_call() {
    let world = CliFixture::new();
    world.write("big.txt", &"a line of this file\n".repeat(4_900));
    let read = ("c", "read_file", r#"{"path": "big.txt", "limit": 9999}"#);
    let server = Server::new([chat::calls(&[read]), chat::text("It has lines.")]);
    let sets =
        ["--set", "context.max_context_tokens=16000", "--set", "context.max_tool_result_tokens=0"];
    let ran = world.run_with_server(&server, &[&sets[..], &["--no-commands", "--json"]].concat());
    assert_eq!(ran.outcome(), outcome(2, "context_full", "partial"), "{}", ran.err);
    assert_eq!(ran.json()["output"], "It has lines.");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let body = requests[1].json().to_string();
    // At 3.5 bytes for a token.
    assert!((30_000..56_000).contains(&body.len()), "{} bytes", body.len());
    assert!(body.contains(" bytes omitted ...]"), "{body}");
}

/// Problems of the project don't hold up an agent that can't change anything.
#[test]
fn quality_gates_are_for_agents_that_can_change_something() {
    let gate = "guardrails.quality_gates=[{ name = 'red', command = 'touch ran; false' }]";
    for agent in ["review", "plan", "resume"] {
        let world = CliFixture::new();
        let server = Server::new([chat::text("Looks bad.")]);
        let ran = world.run_with_server(&server, &["--agent", agent, "--set", gate, "--json"]);
        assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
        assert_eq!((server.requests().len(), world.path("ran").exists()), (1, false));
    }
}

#[test]
fn the_plan_of_a_task_passes_no_gate_and_its_work_does() {
    let world = CliFixture::new();
    let gate = "guardrails.quality_gates=[{ name = 'there', command = 'test -f x' }]";
    let call = ("c", "write_file", r#"{"path": "x", "content": ""}"#);
    let server = Server::new([
        chat::text("Write x."),
        chat::text("Done."),
        chat::calls(&[call]),
        chat::text("Now it is."),
    ]);
    let args = ["--plan-first", "--mode", "yolo", "--set", gate, "--json"];
    let ran = world.run_with_server(&server, &args);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!((&ran.json()["output"], server.requests().len()), (&json!("Now it is."), 4));
}

#[test]
fn a_text_that_ends_for_an_unknown_reason_is_kept_and_paid_for_once() {
    let world = CliFixture::new();
    let script = "[[turn]]\ntext = \"half of it\"\nfinish = \"cosmic_ray\"\n";
    let ran = world.run_script(script, &["--json"]);
    assert_eq!(ran.outcome(), outcome(2, "truncated", "partial"), "{}", ran.err);
    let json = ran.json();
    assert_eq!((&json["output"], &json["llm_calls"]), (&json!("half of it"), &json!(1)));
    assert!(ran.err.contains("ended for an unknown reason, 'cosmic_ray'"), "{}", ran.err);
}
