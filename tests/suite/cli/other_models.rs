//! Other models for summaries and evaluations.

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::{CliFixture, CommandResult, outcome, wait_for_exit};
use crate::kit::server::Server;

/// A turn of a script, which uses a million tokens of output.
fn turn(content: &str, input: u64) -> String {
    format!("[[turn]]\n{content}\nusage = {{ input = {input}, output = 1000000 }}\n")
}

const LIST: &str = r#"calls = [{ name = "list_files" }]"#;

/// Runs a task that needs a summary, with another model for it.
fn run_with_summary(summary_model: &str, sets: &[&str]) -> CommandResult {
    let world = CliFixture::new();
    let turns = [turn(LIST, 0), turn(LIST, 1_600_000), turn("text = \"Done.\"", 0)].concat();
    let main = format!("price = {{ input = 0.0, output = 1.0 }}\nwindow = 2000000\n{turns}");
    world.write("summary.toml", &format!("{summary_model}\n{}", turn("text = \"A summary.\"", 0)));
    let keep = ["--set", "context.keep_recent_steps=1", "--set", "context.summarize_after_steps=1"];
    let other = ["--set", "llm.summary_model=scripted/summary.toml", "--json"];
    world.run_script(&main, &[&keep[..], &other, sets].concat())
}

#[test]
fn another_model_writes_summaries_at_its_own_price() {
    let summary_model = "price = { input = 0.0, output = 0.25 }\nwindow = 3000000";
    let ran = run_with_summary(summary_model, &["--budget", "10"]);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let json = ran.json();
    let by_source = json!({"agent": 3.0, "compaction": 0.25});
    assert_eq!(json["costs"], json!({"total_cost_usd": 3.25, "by_source": by_source}));
    assert_eq!((&json["output"], &json["llm_calls"]), (&json!("Done."), &json!(4)));
}

#[test]
fn a_summary_whose_price_does_not_fit_is_not_made() {
    // The shortest summary would cost more than the rest of the budget.
    let summary_model = "price = { input = 0.0, output = 1000000.0 }\nwindow = 3000000";
    let ran = run_with_summary(summary_model, &["--budget", "10"]);
    let json = ran.json();
    assert_eq!(json["costs"]["by_source"].get("compaction"), None, "{}", ran.err);
    assert!(json["cost"].as_f64().unwrap() <= 10.0, "{json}");
}

#[test]
fn a_model_without_a_price_has_no_budget() {
    let ran = run_with_summary("window = 3000000", &["--budget", "10"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("summary.toml") && ran.err.contains("price"), "{}", ran.err);
    let ran = run_with_summary("window = 3000000", &[]);
    // The summary counts as calls of the task's model do.
    assert_eq!(ran.json()["costs"]["by_source"]["compaction"], json!(1.0), "{}", ran.err);
}

#[test]
fn another_model_evaluates_at_its_own_price() {
    let world = CliFixture::new();
    let good = r#"text = '{"completed": true, "confidence": 0.95}'"#;
    let evaluator = format!("price = {{ input = 0.0, output = 0.5 }}\n{}", turn(good, 0));
    world.write("eval.toml", &evaluator);
    let main = format!("price = {{ input = 0.0, output = 1.0 }}\n{}", turn("text = \"Done.\"", 0));
    let model = ["--self-eval", "basic", "--set", "evaluation.model=scripted/eval.toml"];
    let ran = world.run_script(&main, &[&model[..], &["--budget", "10", "--json"]].concat());
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    let by_source = json!({"agent": 1.0, "eval": 0.5});
    assert_eq!(ran.json()["costs"], json!({"total_cost_usd": 1.5, "by_source": by_source}));
    world.write("eval.toml", &turn(good, 0));
    let ran = world.run_script(&main, &[&model[..], &["--budget", "10"]].concat());
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("eval.toml"), "{}", ran.err);
}

/// Address, key, options and headers are for the provider of the model.
#[test]
fn a_model_of_another_provider_gets_nothing_of_the_first_one() {
    let world = CliFixture::new();
    let good = r#"{"completed": true, "confidence": 0.95}"#;
    let (server, other) = (Server::new([chat::text("Done.")]), Server::new([chat::text(good)]));
    let settings = "llm.options = { seed = 7 }\nllm.headers = { X-Team = 'build' }\nllm.api_key_env = 'MY_KEY'\n";
    world.write("user.toml", settings);
    let model = "evaluation.model=openrouter/m";
    let args = ["--config", "user.toml", "--self-eval", "basic", "--set", model];
    let mut command = world.command_with_server(&server, &args);
    command.env("MY_KEY", "canary-key-1");
    let ran = wait_for_exit(command.spawn().unwrap());
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("OPENROUTER_API_KEY"), "{}", ran.err);
    assert_eq!(server.requests().len(), 0);
    // A model that the user has defined has an address of its own.
    let definition = format!(
        "{settings}[models.second]\nmodel = 'openrouter/m'\napi_base = '{}'\napi_key_env = 'OTHER_KEY'\n",
        other.url("/v1")
    );
    world.write("own.toml", &definition);
    let own = ["--config", "own.toml", "--self-eval", "basic", "--set", "evaluation.model=second"];
    let mut command = world.command_with_server(&server, &own);
    command.env("MY_KEY", "canary-key-1").env("OTHER_KEY", "canary-key-2");
    let ran = wait_for_exit(command.spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let (first, second) = (server.requests().remove(0), other.requests().remove(0));
    assert_eq!(first.header("authorization"), Some("Bearer canary-key-1"));
    assert_eq!(second.header("authorization"), Some("Bearer canary-key-2"));
    assert_eq!((first.header("x-team"), second.header("x-team")), (Some("build"), None));
    assert_eq!((&first.json()["seed"], &second.json()["seed"]), (&json!(7), &json!(null)));
}

/// Key, headers and options are for the server of `llm.api_base`, and a model at another address needs no key.
#[test]
fn a_model_at_another_address_gets_nothing_of_the_first_one() {
    let world = CliFixture::new();
    let (server, other) = (
        Server::new([chat::text("Done."), chat::text("Done.")]),
        Server::new([chat::text("Done.")]),
    );
    let settings = format!(
        "[llm]\nfallback = ['far']\napi_key_env = 'MY_KEY'\nheaders = {{ X-Gateway = 'canary-value' }}\n\
         options = {{ seed = 7 }}\n[models.far]\nmodel = 'openai-chat/far'\napi_base = 'https://far.example/v1'\n\
         [models.spare]\nmodel = 'openai-chat/mine'\napi_base = '{}'\n\
         [models.near]\nmodel = 'openai-chat/mine'\napi_base = '{}'\n",
        other.url("/v1"),
        server.url("/v2")
    );
    world.write("user.toml", &settings);
    let base = server.url("/v1");
    for (model, ambient, is_same) in
        [("openai-chat/fake", "", true), ("near", "", true), ("spare", "canary-key-2", false)]
    {
        let args =
            ["run", "Do it.", "--config", "user.toml", "--api-base", &base, "--model", model];
        let mut command = world.command(&args);
        command.env("MY_KEY", "canary-key-1").env("OPENAI_API_KEY", ambient);
        let ran = wait_for_exit(command.spawn().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let sent = if is_same { &server } else { &other }.requests().pop().unwrap();
        let key = is_same.then_some("Bearer canary-key-1");
        assert_eq!(sent.header("authorization"), key, "{model}");
        assert_eq!(sent.header("x-gateway"), is_same.then_some("canary-value"), "{model}");
        assert_eq!(sent.json()["seed"], if is_same { json!(7) } else { json!(null) }, "{model}");
    }
}
