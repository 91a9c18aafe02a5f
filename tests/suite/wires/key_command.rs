//! Keys that a command of the user prints.

use std::fs;
use std::path::Path;

use architect::llm::{ConnectError, KeyCommandSetting, ModelConnectionSettings};
use architect::types::{FaultClass, FaultKind};

use super::caller::{WireCaller, long_timeouts};
use super::recorded_streams::{Wire, one};
use crate::kit::chat;
use crate::kit::server::{ScriptedReply, Server};

/// Returns a command that prints the key in a file of the folder, and counts its runs in another one.
fn key_command(folder: &Path) -> String {
    let folder = folder.display();
    format!("echo run >> {folder}/runs; cat {folder}/key")
}

fn settings(server: &Server, command: &str) -> ModelConnectionSettings {
    ModelConnectionSettings {
        api_key_command: Some(KeyCommandSetting {
            key: "llm.api_key_command".to_owned(),
            command: command.to_owned(),
        }),
        ..long_timeouts(server, "/v1")
    }
}

fn connect(model: &str, settings: &ModelConnectionSettings) -> Result<WireCaller, ConnectError> {
    let env = |name: &str| match name {
        "OPENAI_API_KEY" | "MY_KEY" => Some("canary-variable".to_owned()),
        "GOOGLE_CLOUD_PROJECT" => Some("my-project".to_owned()),
        "GOOGLE_CLOUD_LOCATION" | "AWS_REGION" => Some("europe-west1".to_owned()),
        _ => None,
    };
    WireCaller::with_env(model, settings, &env)
}

#[test]
fn a_command_runs_once_and_again_when_its_key_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let write_key = |key: &str| fs::write(folder.path().join("key"), key).unwrap();
    let runs = || fs::read_to_string(folder.path().join("runs")).unwrap().lines().count();
    let rejected = |key: &str| {
        let body = format!(r#"{{"error":{{"message":"{key} is expired"}}}}"#);
        ScriptedReply::with_length(401, &body)
    };
    let server = Server::new([
        chat::text("one"),
        rejected("canary-key-1"),
        rejected("canary-key-2"),
        chat::text("two"),
        rejected("canary-key-2"),
    ]);
    write_key(" canary-key-1\n");
    let settings = settings(&server, &key_command(folder.path()));
    let mut first = connect("openai-chat/m", &settings).unwrap();
    let mut second = connect("openai-chat/m", &settings).unwrap();
    first.call().reply();
    assert_eq!(runs(), 1);
    write_key("canary-key-2\n");
    let fault = first.call().fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::Auth, FaultClass::Transient));
    assert!(!fault.message.contains("canary"), "{}", fault.message);
    assert_eq!(runs(), 2);
    // Only one other key is tried in a row.
    write_key("canary-key-3");
    assert_eq!(first.call().fault().class(), FaultClass::Fatal);
    assert_eq!(runs(), 2);
    // The key that another model got is used without running the command again.
    second.call().reply();
    // A key that stays the same is not sent again.
    write_key("canary-key-2");
    let fault = first.call().fault();
    assert_eq!(fault.class(), FaultClass::Fatal);
    let hint = "; the key is the one that llm.api_key_command prints";
    assert!(fault.message.ends_with(hint), "{}", fault.message);
    let sent = server.requests();
    let sent: Vec<_> = sent.iter().map(|request| request.header("authorization")).collect();
    let expected = ["1", "1", "2", "1", "2"].map(|number| format!("Bearer canary-key-{number}"));
    assert_eq!(sent, expected.iter().map(|key| Some(&**key)).collect::<Vec<_>>());
}

#[test]
fn a_key_of_a_command_is_sent_as_the_provider_expects_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), "canary-key").unwrap();
    let command = key_command(folder.path());
    let claude = || one(Wire::Anthropic, "text").in_chunks(100);
    for (model, reply, header, value) in [
        ("anthropic/claude-sonnet-4-5", claude(), "x-api-key", "canary-key"),
        ("vertex/claude-sonnet-4-5", claude(), "authorization", "Bearer canary-key"),
        ("azure-chat/m", chat::text("a"), "api-key", "canary-key"),
    ] {
        let server = Server::new([reply]);
        connect(model, &settings(&server, &command)).unwrap().call().reply();
        assert_eq!(server.requests()[0].header(header), Some(value), "{model}");
    }
    for (model, reply, header) in [
        ("azure-chat/m", chat::text("a"), "authorization"),
        ("anthropic/claude-sonnet-4-5", claude(), "x-api-key"),
    ] {
        let server = Server::new([reply]);
        let token = settings(&server, "echo eyJhbGciOiJub25lIn0.canary.0");
        connect(model, &token).unwrap().call().reply();
        let request = &server.requests()[0];
        assert!(
            request.header(header).unwrap().ends_with("eyJhbGciOiJub25lIn0.canary.0"),
            "{model}"
        );
        assert_eq!(request.header("api-key"), None);
    }
    let server = Server::new([ScriptedReply::with_length(404, "{}")]);
    connect("bedrock/m", &settings(&server, &command)).unwrap().call().fault();
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer canary-key"));
}

#[test]
fn a_named_variable_precedes_a_command() {
    let server = Server::new([chat::text("a")]);
    let settings = ModelConnectionSettings {
        api_key_env: Some("MY_KEY".to_owned()),
        ..settings(&server, "exit 1")
    };
    connect("openai-chat/m", &settings).unwrap().call().reply();
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer canary-variable"));
}

#[test]
fn a_command_without_a_key_is_reported_on_connect() {
    let server = Server::new([]);
    for (command, expected) in [
        ("echo canary >&2; exit 3", "failed (exit status: 3); run it by hand to see why"),
        ("true", "printed a key that is empty"),
        ("echo canary; echo canary", "printed a key that has a character that no key has"),
    ] {
        let error = connect("openai-chat/m", &settings(&server, command)).err().unwrap();
        let error = error.to_string();
        assert!(error.starts_with(&format!("llm.api_key_command {expected}")), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }
}
