//! Runs that consist of several runs: a plan first, an evaluation after.

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit};
use crate::kit::server::Server;

/// Returns the last message of a request.
fn messages_to_model(server: &Server, request: usize) -> String {
    let body = server.requests()[request].json();
    let messages = body["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_str().unwrap().to_owned()
}

#[test]
fn a_plan_goes_before_the_work_and_both_are_counted() {
    let world = CliFixture::new();
    let call = ("c", "write_file", r#"{"path": "x", "content": ""}"#);
    let server =
        Server::new([chat::text("1. Write x."), chat::calls(&[call]), chat::text("Written.")]);
    let ran = world.run_with_server(&server, &["--plan-first", "--mode", "yolo", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!((&ran.json()["output"], &ran.json()["llm_calls"]), (&json!("Written."), &json!(3)));
    assert!(messages_to_model(&server, 1).starts_with("Do it.\n\n## Plan\n\n1. Write x."));
    let tools = server.requests()[0].json()["tools"].to_string();
    assert!(tools.contains("read_file") && !tools.contains("write_file"), "{tools}");
}

#[test]
fn a_basic_evaluation_that_is_not_satisfied_makes_the_run_partial() {
    let world = CliFixture::new();
    let decision = r#"{"completed": false, "confidence": 0.9, "issues": ["no test"]}"#;
    let server = Server::new([chat::text("Done."), chat::text(decision)]);
    let ran = world.run_with_server(&server, &["--self-eval", "basic", "--json"]);
    assert_eq!(ran.outcome(), outcome(2, "evaluation_failed", "partial"), "{}", ran.err);
    let json = ran.json();
    assert_eq!((&json["output"], &json["llm_calls"]), (&json!("Done."), &json!(2)));
    assert_eq!(json["evaluation"]["issues"], json!(["no test"]));
    assert!(ran.err.contains("finds the task not completed: [\"no test\"]"), "{}", ran.err);
    assert!(ran.err.contains("Agent stopped: evaluation_failed"), "{}", ran.err);
}

/// The reported end of a run is the stored one, and the printed hash is that of the journal with this end.
#[test]
fn the_store_knows_how_an_evaluation_has_decided() {
    let world = CliFixture::new();
    let bad = r#"{"completed": false, "confidence": 0.9, "issues": ["no test"]}"#;
    let good = r#"{"completed": true, "confidence": 0.9}"#;
    let server = Server::new(["Done.", bad, good].map(chat::text));
    let ran = world.run_with_server(&server, &["--self-eval", "basic", "--json"]);
    let stored = |ran: &CommandResult| {
        let hash = ran.json()["journal_hash"].as_str().unwrap().to_owned();
        let verified = world.run(&["replay", "last", "--verify", "--expect-hash", &hash, "--json"]);
        assert_eq!(verified.code, 0, "{}", verified.err);
        assert_eq!(verified.json()["stop_reason"], ran.json()["stop_reason"]);
        let trace = world.run(&["trace", "last", "--json"]).json();
        assert_eq!(trace["stop_reason"], ran.json()["stop_reason"]);
        world.run(&["sessions", "show", "last", "--json"]).json()["stop_reason"].clone()
    };
    assert_eq!(stored(&ran), "evaluation_failed");
    let mut resume = world.command(&["resume", "last", "--json"]);
    let ran = wait_for_exit(resume.env("OPENAI_API_KEY", "k").spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!((stored(&ran), &ran.json()["llm_calls"]), (json!("llm_done"), &json!(3)));
}

#[test]
fn a_basic_evaluation_that_is_satisfied_changes_nothing() {
    let world = CliFixture::new();
    let decision = r#"{"completed": true, "confidence": 0.8}"#;
    let server = Server::new([chat::text("Done."), chat::text(decision)]);
    let ran = world.run_with_server(&server, &["--self-eval", "basic", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert!(!ran.err.contains("the evaluation finds"), "{}", ran.err);
}

/// The threshold is the lowest confidence at which a result counts; a requested evaluation must have a decision.
#[test]
fn an_evaluation_without_confidence_or_decision_is_not_satisfied() {
    let unsure = r#"{"completed": true, "confidence": 0.5}"#;
    for (mode, notice, warning) in [
        (
            "basic",
            unsure,
            "with a confidence of 0.50, below evaluation.confidence_threshold (0.80)",
        ),
        ("basic", "Well, who knows.", "the evaluation failed: its model did not answer"),
        ("full", "Well, who knows.", "the evaluation failed: its model did not answer"),
    ] {
        let world = CliFixture::new();
        let server = Server::new([chat::text("Done."), chat::text(notice)]);
        let ran = world.run_with_server(&server, &["--self-eval", mode, "--json"]);
        assert_eq!(
            ran.outcome(),
            outcome(2, "evaluation_failed", "partial"),
            "{notice}: {}",
            ran.err
        );
        assert_eq!(ran.json()["output"], "Done.");
        assert!(ran.err.contains(warning), "{}", ran.err);
    }
}

#[test]
fn a_full_evaluation_that_is_never_satisfied_makes_the_run_partial() {
    let world = CliFixture::new();
    let bad = r#"{"completed": false, "confidence": 0.9, "issues": ["no test"]}"#;
    let server = Server::new(["One.", bad, "Two.", bad].map(chat::text));
    let args =
        ["--self-eval", "full", "--set", "evaluation.max_retries=1", "--exit-code-on-partial", "0"];
    let ran = world.run_with_server(&server, &[&args[..], &["--json"]].concat());
    assert_eq!(ran.outcome(), outcome(0, "evaluation_failed", "partial"), "{}", ran.err);
    assert_eq!((&ran.json()["output"], server.requests().len()), (&json!("Two."), 4));
}

#[test]
fn a_full_evaluation_sends_the_work_back_into_the_same_session() {
    let world = CliFixture::new();
    let bad = r#"{"completed": false, "confidence": 0.9, "issues": ["no test"]}"#;
    let good = r#"{"completed": true, "confidence": 0.95}"#;
    let replies = ["Done.", bad, "Now with a test.", good].map(chat::text);
    let server = Server::new(replies);
    let ran = world.run_with_server(&server, &["--self-eval", "full", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(ran.json()["output"], "Now with a test.");
    let again = server.requests()[2].json()["messages"].to_string();
    assert!(again.contains("Do it.") && again.contains("no test"), "{again}");
    assert_eq!(world.run(&["sessions", "--json"]).json().as_array().unwrap().len(), 1);
}

/// The second run has the rest of the first one's limits.
#[test]
fn the_runs_share_their_limits() {
    let world = CliFixture::new();
    let server = Server::repeating([chat::text("A plan.")]);
    let used = (chat::USAGE.0 + chat::USAGE.1).to_string();
    let ran = world.run_with_server(&server, &["--plan-first", "--max-tokens", &used, "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(ran.json()["stop_reason"], "budget_exceeded");
}

/// The prices of the model: 20 cents for each of its replies, and as much is reserved for one.
pub(crate) const PRICES: &str =
    "[models.openai]\nfake = { output = 20, price = { input = 0.0, output = 10_000.0 } }\n";

/// The costs of its evaluations reduce the budget that a resumed session has left.
#[test]
fn evaluations_count_towards_the_budget_of_a_resumed_session() {
    let world = CliFixture::new();
    let good = chat::text(r#"{"completed": true, "confidence": 0.95}"#);
    let server = Server::new([chat::text("One."), good, chat::text("Too much.")]);
    let prices = world.write("prices.toml", PRICES).path("prices.toml");
    let prices = format!("costs.prices_file={}", prices.display());
    let args = ["--self-eval", "basic", "--budget", "0.5", "--set", &prices];
    assert_eq!(world.run_with_server(&server, &args).code, 0);
    let mut resume = world.command(&["resume", "last", "Go on.", "--json"]);
    let ran = wait_for_exit(resume.env("OPENAI_API_KEY", "k").spawn().unwrap());
    assert_eq!(ran.outcome().1, "budget_exceeded", "{}", ran.err);
    assert!(ran.err.contains("$0.400000 of $0.500000 is spent"), "{}", ran.err);
    assert_eq!(server.requests().len(), 2);
}

/// The second and the third round continue the session of the first one, and share its account.
#[test]
fn money_is_counted_once_however_often_the_work_is_sent_back() {
    let world = CliFixture::new();
    let bad = r#"{"completed": false, "confidence": 0.9, "issues": ["no test"]}"#;
    let good = r#"{"completed": true, "confidence": 0.95}"#;
    let server = Server::new(["One.", bad, "Two.", bad, "Three.", good].map(chat::text));
    let prices = world.write("prices.toml", PRICES).path("prices.toml");
    let prices = format!("costs.prices_file={}", prices.display());
    let retries = "evaluation.max_retries=2";
    let args = ["--self-eval", "full", "--budget", "1.4", "--set", &prices, "--set", retries];
    let ran = world.run_with_server(&server, &[&args[..], &["--json"]].concat());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let json = ran.json();
    assert_eq!((&json["output"], &json["llm_calls"]), (&json!("Three."), &json!(6)));
    assert_eq!(
        json["costs"],
        json!({"total_cost_usd": 1.2, "by_source": {"agent": 0.6, "eval": 0.6}})
    );
    assert_eq!((&json["cost"], &json["usage"]["output_tokens"]), (&json!(1.2), &json!(120)));
    let mut resume =
        world.command(&["resume", "last", "And further.", "--json", "--budget", "0.6"]);
    let ran = wait_for_exit(resume.env("OPENAI_API_KEY", "k").spawn().unwrap());
    assert_eq!(ran.outcome().1, "budget_exceeded", "{}", ran.err);
}

#[test]
fn a_plan_and_its_work_cost_what_they_cost() {
    let world = CliFixture::new();
    let server = Server::new(["A plan.", "Done."].map(chat::text));
    let prices = world.write("prices.toml", PRICES).path("prices.toml");
    let prices = format!("costs.prices_file={}", prices.display());
    let ran = world
        .run_with_server(&server, &["--plan-first", "--budget", "0.6", "--set", &prices, "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let expected = json!({"total_cost_usd": 0.4, "by_source": {"agent": 0.2, "plan": 0.2}});
    assert_eq!((&ran.json()["costs"], &ran.json()["llm_calls"]), (&expected, &json!(2)));
}
