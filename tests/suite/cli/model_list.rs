//! `architect models --online`: the models that a key gives access to.

use serde_json::{Value, json};

use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

/// Lists the models of a provider whose server answers with this document.
fn list(provider: &str, status: u16, document: &Value) -> (CommandResult, Server) {
    let (world, server) = (
        CliFixture::new(),
        Server::new([ScriptedReply::with_length(status, &document.to_string())]),
    );
    let base = format!("llm.api_base={}", server.url("/v1"));
    let args = ["models", "--online", "--json", "--provider", provider, "--set", &base];
    let mut command = world.command(&args);
    for variable in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
        command.env(variable, "canary-key");
    }
    (wait_for_exit(command.spawn().unwrap()), server)
}

#[test]
fn the_models_of_a_key_are_listed_with_what_is_known_of_them() {
    let openai = json!({"object": "list", "data": [{"id": "gpt-5"}, {"id": "tuned-1"}]});
    let claude = json!({"data": [{"id": "claude-sonnet-4-6", "type": "model"}], "has_more": false});
    let methods = json!(["generateContent"]);
    let gemini =
        json!({"models": [{"name": "models/gemini-x", "supportedGenerationMethods": methods}]});
    for (provider, document, names, path, header) in [
        ("openai", openai, vec!["openai/gpt-5", "openai/tuned-1"], "/v1/models", "authorization"),
        (
            "anthropic",
            claude,
            vec!["anthropic/claude-sonnet-4-6"],
            "/v1/models?limit=1000",
            "x-api-key",
        ),
        ("gemini", gemini, vec!["gemini/gemini-x"], "/v1/models?pageSize=1000", "x-goog-api-key"),
    ] {
        let (ran, server) = list(provider, 200, &document);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let models = ran.json();
        let listed: Vec<&Value> =
            models.as_array().unwrap().iter().map(|model| &model["model"]).collect();
        assert_eq!(listed, names);
        let request = server.requests().remove(0);
        assert_eq!((&*request.method, &*request.path), ("GET", path));
        assert!(request.header(header).is_some_and(|key| key.contains("canary-key")), "{provider}");
        if provider == "openai" {
            assert_eq!(
                (&models[0]["window"], &models[1]["window"]),
                (&json!(272_000), &Value::Null)
            );
        }
    }
}

#[test]
fn a_list_that_the_provider_refuses_is_an_error_without_the_key() {
    let error = json!({"error": {"message": "bad key canary-key", "type": "authentication_error"}});
    let (ran, _server) = list("openai", 401, &error);
    assert_eq!((ran.code, &*ran.out), (1, ""), "{}", ran.err);
    assert!(
        ran.err.contains("401: bad key ***; the key is the one in OPENAI_API_KEY"),
        "{}",
        ran.err
    );
    let (ran, server) = list("bedrock", 200, &json!({}));
    assert_eq!((ran.code, server.requests().len()), (3, 0), "{}", ran.err);
    assert!(ran.err.contains("bedrock has no list of the models"), "{}", ran.err);
}
