//! Vertex: Gemini and Claude, with their own formats in the paths of Google.

use architect::llm::{ConnectError, ModelConnectionSettings};
use architect::types::{FaultClass, FaultKind};

use super::caller::{KEY, WireCaller, long_timeouts};
use super::recorded_streams::{Wire, all, one};
use super::recordings::seen;
use crate::kit::server::{ReceivedRequest, ScriptedReply, Server};

const CLAUDE: &str = "vertex/claude-sonnet-4-5@20250929";
const GEMINI: &str = "vertex/gemini-3.7-flash";

const FOLDER: &str = "/v1/projects/my-project/locations/europe-west1/publishers";

fn env(name: &str) -> Option<String> {
    let value = match name {
        "VERTEX_ACCESS_TOKEN" => KEY,
        "GOOGLE_CLOUD_PROJECT" => "my-project",
        "GOOGLE_CLOUD_LOCATION" => "europe-west1",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Returns the request of a call.
fn request(model: &str, path: &str, reply: ScriptedReply, stream: bool) -> ReceivedRequest {
    let server = Server::new([reply]);
    let settings = ModelConnectionSettings { stream, ..long_timeouts(&server, path) };
    WireCaller::with_env(model, &settings, &env).unwrap().call().reply();
    server.requests().remove(0)
}

#[test]
fn any_chunking_of_a_recorded_stream_gives_the_same_reply() {
    for (wire, model) in [(Wire::Anthropic, CLAUDE), (Wire::Gemini, GEMINI)] {
        for recording in all(wire) {
            for size in [7, usize::MAX] {
                let server = Server::new([recording.in_chunks(size)]);
                let mut caller =
                    WireCaller::with_env(model, &long_timeouts(&server, ""), &env).unwrap();
                let reply = caller.call().reply();
                assert_eq!(seen(&reply), recording.expected, "{} by {size}", recording.name);
            }
        }
    }
}

#[test]
fn a_claude_model_gets_messages_without_its_name() {
    let text = one(Wire::Anthropic, "text");
    let sent = request(CLAUDE, "", text.in_chunks(100), true);
    let model = "anthropic/models/claude-sonnet-4-5@20250929";
    assert_eq!(sent.path, format!("{FOLDER}/{model}:streamRawPredict"));
    assert_eq!(sent.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!((sent.header("x-api-key"), sent.header("anthropic-version")), (None, None));
    let body = sent.json();
    assert_eq!(body["anthropic_version"], "vertex-2023-10-16");
    assert_eq!((&body["stream"], &body["max_tokens"]), (&true.into(), &32_000.into()));
    assert!(body.get("model").is_none(), "{body}");
    let sent = request(CLAUDE, "", text.whole(), false);
    assert_eq!(sent.path, format!("{FOLDER}/{model}:rawPredict"));
}

#[test]
fn a_gemini_model_gets_its_own_format() {
    let text = one(Wire::Gemini, "text");
    let sent = request(GEMINI, "", text.in_chunks(100), true);
    let model = "google/models/gemini-3.7-flash";
    assert_eq!(sent.path, format!("{FOLDER}/{model}:streamGenerateContent?alt=sse"));
    assert_eq!(sent.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(sent.header("x-goog-api-key"), None);
    assert!(sent.json()["contents"].is_array());
    // A base URL with a project keeps it.
    let sent = request(GEMINI, "/v1/projects/p/locations/l", text.whole(), false);
    assert_eq!(sent.path, format!("/v1/projects/p/locations/l/publishers/{model}:generateContent"));
    let sent = request(GEMINI, "/v1beta1", text.whole(), false);
    assert!(sent.path.starts_with("/v1beta1/projects/my-project/locations/europe-west1/"));
}

#[test]
fn a_rejected_token_is_reported_with_its_variable() {
    let body =
        r#"[{"error":{"code":401,"message":"invalid credentials","status":"UNAUTHENTICATED"}}]"#;
    let server = Server::new([ScriptedReply::with_length(401, body)]);
    let mut caller = WireCaller::with_env(CLAUDE, &long_timeouts(&server, ""), &env).unwrap();
    let fault = caller.call().fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::Auth, FaultClass::Fatal));
    assert!(
        fault.message.contains("the key is the one in VERTEX_ACCESS_TOKEN"),
        "{}",
        fault.message
    );
}

#[test]
fn what_is_missing_is_reported_on_connect() {
    let error = |set: &[&str], location: &str| {
        let env = |name: &str| match name {
            "GOOGLE_CLOUD_LOCATION" if set.contains(&name) => Some(location.to_owned()),
            _ => set.contains(&name).then(|| env(name).unwrap()),
        };
        let settings = ModelConnectionSettings::default();
        WireCaller::with_env(GEMINI, &settings, &env).err().unwrap()
    };
    let (project, location) = ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION");
    let no_project = error(&[location], "global").to_string();
    let expected = "the variable GOOGLE_CLOUD_PROJECT or ANTHROPIC_VERTEX_PROJECT_ID is not set";
    assert!(no_project.ends_with(expected), "{no_project}");
    let invalid = error(&[project, location], "evil.example.com/");
    assert_eq!(invalid, ConnectError::InvalidAddressPart(location));
    let no_token = error(&[project, location], "global");
    assert!(matches!(no_token, ConnectError::MissingKey { provider: "vertex", .. }), "{no_token}");
}
