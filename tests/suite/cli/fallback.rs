//! Fallbacks: another model is called when one is out of reach.

use std::fs;

use serde_json::{Value, json};

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

/// A reply in Anthropic's format with a signed thought and a tool call.
fn signed_call() -> ScriptedReply {
    let content = json!([
        {"type": "thinking", "thinking": "Look.", "signature": "canary-signature"},
        {"type": "tool_use", "id": "toolu_1", "name": "list_files", "input": {}},
    ]);
    let usage = json!({"input_tokens": 100, "output_tokens": 20});
    let reply = json!({"id": "m1", "type": "message", "role": "assistant", "model": "first-1",
        "content": content, "stop_reason": "tool_use", "usage": usage});
    ScriptedReply::with_length(200, &reply.to_string())
}

/// A model in Anthropic's format, and two others in OpenAI's, each on a server of its own.
struct Models {
    world: CliFixture,
    first: Server,
    second: Server,
}

impl Models {
    fn new(
        first: impl IntoIterator<Item = ScriptedReply>,
        second: impl IntoIterator<Item = ScriptedReply>,
    ) -> Self {
        let world = CliFixture::new();
        let (first, second) = (Server::new(first), Server::new(second));
        let model = |name: &str, provider: &str, address: &str, price: u32| {
            format!(
                "[models.{name}]\nmodel = '{provider}/{name}-model'\napi_base = '{address}'\n\
                 api_key_env = 'A_KEY'\nprice = {{ input = {price}, output = {price} }}\n"
            )
        };
        let settings = format!(
            "[llm]\nmodel = 'first'\nfallback = ['second']\nretries = 0\nstream = false\n{}{}{}",
            model("first", "anthropic", &first.url(""), 1),
            model("dear", "openai-chat", &second.url("/v1"), 1_000_000),
            model("second", "openai-chat", &second.url("/v1"), 2),
        );
        let folder = world.home().join(".config/architect");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), settings).unwrap();
        Self { world, first, second }
    }

    fn run(&self, args: &[&str]) -> CommandResult {
        let mut command = self.world.command(args);
        command.env("A_KEY", "canary-key");
        wait_for_exit(command.spawn().unwrap())
    }

    /// Returns the numbers of requests.
    fn requests(&self) -> (usize, usize) {
        (self.first.requests().len(), self.second.requests().len())
    }
}

fn overloaded() -> ScriptedReply {
    ScriptedReply::with_length(503, r#"{"error":{"message":"overloaded"}}"#)
}

#[test]
fn a_task_is_finished_by_another_model_and_resumed_with_it() {
    let more = [chat::unstreamed("Done."), chat::unstreamed("More.")];
    let models = Models::new([signed_call(), overloaded()], more);
    let report = ["--report", "markdown", "--report-file", "report.md"];
    let stream = ["run", "Do it.", "--output-format", "stream-json", "--budget", "1"];
    let ran = models.run(&[&stream[..], &report].concat());
    let lines = ran.lines();
    let result = lines.last().unwrap();
    assert_eq!((ran.code, &result["output"]), (0, &json!("Done.")), "{}", ran.err);
    let used = |calls: u32, cost: f64| {
        json!([
            {"model": "anthropic/first-model", "calls": 2, "cost": 0.00012},
            {"model": "openai-chat/second-model", "calls": calls, "cost": cost},
        ])
    };
    assert_eq!(result["models"], used(1, 0.00024));
    assert_eq!((&result["llm_calls"], &result["cost"]), (&json!(3), &json!(0.00036)));
    let of = |kind: &str| -> Vec<&Value> { lines.iter().filter(|it| it["type"] == kind).collect() };
    let fallback = of("model_fallback")[0];
    assert_eq!(fallback["from"], "anthropic/first-model");
    assert_eq!(
        (&fallback["to"], &fallback["fault"]),
        (&json!("openai-chat/second-model"), &json!("server"))
    );
    let called: Vec<&Value> = of("api_call_start").iter().map(|start| &start["model"]).collect();
    assert_eq!(called, [&Value::Null, &Value::Null, &json!("openai-chat/second-model")]);
    let guards: Vec<_> = of("state_change").iter().map(|change| change["guard"].as_str()).collect();
    assert!(guards.contains(&Some("mayFallBack")), "{guards:?}");
    assert!(ran.err.contains("continuing with openai-chat/second-model"), "{}", ran.err);
    let report = models.world.read("report.md");
    assert!(report.contains("| `openai-chat/second-model` | 1 | \\$0.000240 |"), "{report}");

    // The history is in the other format, without the signature.
    let request = models.second.requests().remove(0);
    assert!(!request.body.contains("canary-signature"), "{}", request.body);
    let messages = request.json()["messages"].as_array().unwrap().clone();
    let roles: Vec<&Value> = messages.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);

    let ran = models.run(&["resume", "last", "More.", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!(models.requests(), (2, 2));
    assert_eq!(ran.json()["models"], used(2, 0.00048));
    let costs = models.run(&["sessions", "costs"]);
    assert!(costs.out.contains("openai-chat/second-model"), "{}", costs.out);
    // Without fallbacks, the first model is called again.
    let ran = models.run(&["resume", "last", "Again.", "--set", "llm.fallback=[]", "--json"]);
    assert_eq!((ran.code, models.requests()), (1, (3, 2)), "{}", ran.err);
}

#[test]
fn the_cost_of_a_model_that_only_failed_is_zero_also_after_a_resume() {
    let more = [chat::unstreamed("Done."), chat::unstreamed("More.")];
    let models = Models::new([overloaded()], more);
    let failed = json!({"model": "anthropic/first-model", "calls": 1, "cost": 0.0});
    assert_eq!(models.run(&["run", "Do it.", "--json"]).json()["models"][0], failed);
    assert_eq!(models.run(&["resume", "last", "More.", "--json"]).json()["models"][0], failed);
}

#[test]
fn a_lost_call_is_counted_for_the_model_that_was_called() {
    let models = Models::new([ScriptedReply::closed()], [chat::unstreamed("Done.")]);
    let ran = models.run(&["run", "Do it.", "--json"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let stats = models.run(&["stats", "--json"]).json();
    let costs = |rows: &Value| -> Vec<(String, f64)> {
        let cost = |row: &Value| (row["model"].to_string(), row["cost"].as_f64().unwrap());
        rows.as_array().unwrap().iter().map(cost).collect()
    };
    let mut expected = costs(&ran.json()["models"]);
    let mut counted = costs(&stats["models"]);
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    counted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!((counted.len(), &counted), (2, &expected), "{stats}");
    assert!(expected[0].1 > 0.0, "what was sent is charged");
}

/// The recording has the failed request to the first model, and the reply of the other one.
#[test]
fn a_recording_of_several_models_is_replayed() {
    let models = Models::new([signed_call(), overloaded()], [chat::unstreamed("Done.")]);
    let recorded = models.run(&["run", "Do it.", "--record", "run.jsonl", "--json"]);
    let replay = ["run", "Do it.", "--model", "replay/run.jsonl", "--json"];
    let replayed = wait_for_exit(models.world.command(&replay).spawn().unwrap());
    assert_eq!(replayed.outcome(), outcome(0, "llm_done", "success"), "{}", replayed.err);
    assert_eq!(models.requests(), (2, 1));
    let of = |ran: &CommandResult| (ran.json()["output"].clone(), ran.json()["cost"].clone());
    assert_eq!(of(&recorded), (json!("Done."), json!(0.00036)));
    assert_eq!(of(&recorded).0, of(&replayed).0);
    assert_eq!(replayed.json()["models"][1]["model"], "openai-chat/second-model");
}

#[test]
fn only_a_model_that_is_out_of_reach_is_replaced() {
    let error = |status, kind: &str, message: &str| {
        let error = json!({"error": {"type": kind, "message": message}});
        ScriptedReply::with_length(status, &error.to_string())
    };
    let fault = |reply| {
        let models = Models::new([reply], [chat::unstreamed("Done.")]);
        let ran = models.run(&["run", "Do it.", "--json"]);
        (ran.code, models.requests())
    };
    assert_eq!(fault(error(404, "not_found_error", "model: first-model")), (0, (1, 1)));
    assert_eq!(fault(ScriptedReply::closed()), (0, (1, 1)));
    let slow = [("retry-after", "600")];
    assert_eq!(fault(ScriptedReply::with_headers(429, &slow, "{}")), (0, (1, 1)));
    assert_eq!(fault(error(401, "authentication_error", "no")), (4, (1, 0)));
    assert_eq!(fault(error(400, "invalid_request_error", "no")), (1, (1, 0)));
    assert_eq!(fault(error(400, "invalid_request_error", "prompt is too long")), (2, (2, 0)));
}

#[test]
fn a_model_that_the_budget_does_not_cover_is_passed_over() {
    let run = |fallback: &str| {
        let models = Models::new([overloaded()], [chat::unstreamed("Done.")]);
        let fallback = format!("llm.fallback={fallback}");
        let ran = models.run(&["run", "Do it.", "--budget", "1", "--set", &fallback, "--json"]);
        assert!(ran.err.contains("cover a call of openai-chat/dear-model"), "{}", ran.err);
        (ran, models)
    };
    let (ran, models) = run("['dear', 'second']");
    assert_eq!((&ran.json()["output"], models.requests()), (&json!("Done."), (1, 1)));
    let (ran, models) = run("['dear']");
    assert_eq!((ran.outcome(), models.requests()), (outcome(1, "llm_error", "failed"), (1, 0)));
    let error = ran.json()["error"].to_string();
    assert!(error.contains("the budget does not cover a call of another model"), "{error}");
}

#[test]
fn a_wrong_fallback_is_found_before_the_first_request() {
    let error = |fallback: &str| {
        let models = Models::new([], []);
        let set = format!("llm.fallback=['{fallback}']");
        let ran = models.run(&["run", "Do it.", "--set", &set]);
        assert_eq!((ran.code, models.requests()), (3, (0, 0)), "{}", ran.err);
        ran.err
    };
    assert!(error("nonesuch/m").contains("nonesuch"));
    assert!(error("first").contains("has anthropic/first-model twice"));
    assert!(error("anthropic/claude-haiku-4-5").contains("ANTHROPIC_API_KEY"));
}

#[test]
fn the_bounds_of_a_run_count_the_calls_of_other_models() {
    let models = Models::new([], []);
    let bounds = |set: &str| {
        let ran = models.run(&["machine", "--bounds", "--set", set, "--set", "limits.max_steps=1"]);
        let line = ran.out.lines().next().unwrap_or_default().to_owned();
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert_eq!(numbers.len(), 2, "{line}{}", ran.err);
        (numbers[0], numbers[1])
    };
    let (calls, requests) = bounds("llm.fallback=[]");
    // The first one fails with its only attempt.
    assert_eq!(bounds("llm.fallback=['second']"), (calls + 1, requests + 1));
}

#[test]
fn statistics_count_the_failures_of_each_model() {
    let models = Models::new([overloaded()], [overloaded()]);
    assert_ne!(models.run(&["run", "Do it."]).code, 0);
    let printed = models.run(&["stats", "--json"]).json();
    let rows = printed["models"].as_array().unwrap();
    let mut failures: Vec<_> =
        rows.iter().map(|row| (row["model"].as_str().unwrap(), &row["failures"])).collect();
    failures.sort_by_key(|(model, _)| *model);
    let one = json!(1);
    let expected = [("anthropic/first-model", &one), ("openai-chat/second-model", &one)];
    assert_eq!(failures, expected, "{printed}");
}
