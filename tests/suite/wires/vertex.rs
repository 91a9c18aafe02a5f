//! Vertex: Gemini and Claude, with their own formats in the paths of Google.

use std::sync::Arc;

use architect::llm::{ConnectError, ModelConnectionSettings};
use architect::port::WallClock;
use architect::runner::SystemClock;
use architect::types::{FaultClass, FaultKind};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use super::caller::{KEY, WireCaller, long_timeouts};
use super::recorded_streams::{Wire, all, one};
use super::recordings::seen;
use crate::kit::server::{ReceivedRequest, ScriptedReply, Server};
use crate::kit::service_account::{EMAIL, PRIVATE_KEY, account_file};

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

/// Returns a model whose requests get tokens with the key in a file.
fn with_account(server: &Server, file: &Value) -> Result<WireCaller, ConnectError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("account.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let env = |name: &str| match name {
        "GOOGLE_APPLICATION_CREDENTIALS" => Some(path.clone()),
        "VERTEX_ACCESS_TOKEN" => None,
        name => env(name),
    };
    let clock = Some(WallClock::new(Arc::new(SystemClock::start())));
    let settings = ModelConnectionSettings { clock, ..long_timeouts(server, "") };
    WireCaller::with_env(CLAUDE, &settings, &env)
}

fn token(text: &str, seconds: u64) -> ScriptedReply {
    let answer = json!({"access_token": text, "expires_in": seconds, "token_type": "Bearer"});
    ScriptedReply::with_length(200, &answer.to_string())
}

#[test]
fn the_key_of_a_service_account_gets_a_token_for_several_requests() {
    let text = one(Wire::Anthropic, "text");
    let rejected = ScriptedReply::with_length(401, r#"{"error":{"message":"expired"}}"#);
    let server = Server::new([
        token("canary-token-1", 3_600),
        text.in_chunks(100),
        text.in_chunks(100),
        rejected,
        // The token is replaced before each request.
        token("canary-token-2", 0),
        token("canary-token-3", 3_600),
        text.in_chunks(100),
    ]);
    let mut caller = with_account(&server, &account_file(&server.url("/token"))).unwrap();
    caller.call().reply();
    caller.call().reply();
    let fault = caller.call().fault();
    assert_eq!(fault.class(), FaultClass::Transient);
    assert!(!fault.message.contains("canary"), "{}", fault.message);
    caller.call().reply();
    let requests = server.requests();
    let tokens: Vec<Option<&str>> =
        requests.iter().map(|request| request.header("authorization")).collect();
    let bearer = |number| Some(["", "Bearer canary-token-1", "", "Bearer canary-token-3"][number]);
    assert_eq!(tokens, [None, bearer(1), bearer(1), bearer(1), None, None, bearer(3)]);

    let form = requests[0].body.split_once("&assertion=").unwrap();
    assert_eq!(form.0, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer");
    let (signed, signature) = form.1.rsplit_once('.').unwrap();
    let pem: String = PRIVATE_KEY.lines().filter(|line| !line.starts_with("---")).collect();
    let key = RsaKeyPair::from_pkcs8(&BASE64_STANDARD.decode(pem).unwrap()).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    key.verify(signed.as_bytes(), &signature).unwrap();
    let part = |text: &str| -> Value {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    let (head, claims) = signed.split_once('.').unwrap();
    let (head, claims) = (part(head), part(claims));
    assert_eq!(head, json!({"alg": "RS256", "typ": "JWT", "kid": "key-1"}));
    assert_eq!((&claims["iss"], &claims["aud"]), (&json!(EMAIL), &json!(server.url("/token"))));
    assert_eq!(claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
    let [from, until] = ["iat", "exp"].map(|name| claims[name].as_u64().unwrap());
    assert_eq!(until - from, 3_600);
}

#[test]
fn a_refused_or_wrong_service_account_is_reported_without_its_key() {
    let refusal = r#"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#;
    let server = Server::new([ScriptedReply::with_length(400, refusal)]);
    let good = account_file(&server.url("/token"));
    let fault = with_account(&server, &good).unwrap().call().fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::Auth, FaultClass::Fatal));
    let expected = "answers 400 and gives no access token (invalid_grant: Invalid JWT Signature.); the keys are \
                    those of the service account tester@";
    assert!(fault.message.contains(expected), "{}", fault.message);
    for (field, value, expected) in [
        ("type", json!("authorized_user"), "of the type 'authorized_user'"),
        ("token_uri", json!("http://example.com/token"), "has an invalid `token_uri`"),
        ("private_key", json!("canary"), "has no valid `private_key`"),
        ("client_email", Value::Null, "has no `client_email`"),
    ] {
        let mut file = good.clone();
        file[field] = value;
        let error = with_account(&server, &file).err().unwrap().to_string();
        assert!(error.contains(expected) && !error.contains("canary"), "{error}");
        assert!(error.contains("in GOOGLE_APPLICATION_CREDENTIALS"), "{error}");
    }
}
