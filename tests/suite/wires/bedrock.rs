//! Bedrock: event streams, signatures, keys and errors.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use architect::llm::{ConnectError, ModelConnectionSettings, Recorder};
use architect::port::{Clock, WallClock};
use architect::types::{FaultClass, FaultKind, RunTime};
use serde_json::{Value, json};

use super::caller::{CallResult, KEY, WireCaller, long_timeouts};
use super::recorded_streams::{Recording, Wire, all, one};
use super::recordings::seen;
use crate::kit::bedrock;
use crate::kit::server::{ScriptedReply, Server, chunk};

const MODEL: &str = "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0";

/// 2015-08-30T12:36:00Z, in seconds.
const NOW: u64 = 1_440_938_160;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> RunTime {
        RunTime::START
    }

    fn wall_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
    }
}

fn settings(server: &Server) -> ModelConnectionSettings {
    let clock = Some(WallClock::new(Arc::new(FixedClock)));
    ModelConnectionSettings { clock, ..long_timeouts(server, "") }
}

/// Keys for signatures in the environment.
fn env(name: &str) -> Option<String> {
    let value = match name {
        "AWS_ACCESS_KEY_ID" => "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY" => KEY,
        "AWS_SESSION_TOKEN" => "canary-token-0123456789",
        "AWS_REGION" => "eu-west-1",
        _ => return None,
    };
    Some(value.to_owned())
}

fn caller(server: &Server) -> WireCaller {
    WireCaller::with_env(MODEL, &settings(server), &env).unwrap()
}

fn call(reply: ScriptedReply) -> CallResult {
    caller(&Server::new([reply])).call()
}

/// Returns the events of a recording as messages.
fn messages(recording: &Recording) -> Vec<Vec<u8>> {
    let data = |event: &str| {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let events = recording.events().into_iter().map(data).filter(|data| !data.is_empty());
    events.map(|data| bedrock::event(&data)).collect()
}

#[test]
fn any_chunking_of_an_event_stream_gives_the_same_reply() {
    for recording in all(Wire::Anthropic) {
        let body = messages(&recording).concat();
        for size in [1, 7, 1_000, usize::MAX] {
            let called = call(bedrock::stream(&body, size));
            assert_eq!(seen(&called.reply()), recording.expected, "{} by {size}", recording.name);
        }
    }
}

#[test]
fn a_reply_in_one_document_is_read() {
    let recording = one(Wire::Anthropic, "tool");
    let server = Server::new([recording.whole()]);
    let settings = ModelConnectionSettings { stream: false, ..settings(&server) };
    let reply = WireCaller::with_env(MODEL, &settings, &env).unwrap().call().reply();
    assert_eq!(seen(&reply), recording.expected);
    let request = &server.requests()[0];
    let path = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke";
    assert_eq!((&*request.path, request.header("accept")), (path, Some("application/json")));
}

/// Faults L29 and L30: after each message, and in the middle of each.
#[test]
fn a_broken_event_stream_is_truncated() {
    let messages = messages(&one(Wire::Anthropic, "tool"));
    for count in 0..messages.len() {
        let (before, next) = (messages[..count].concat(), &messages[count]);
        let half = [&before[..], &next[..next.len() / 2]].concat();
        for body in [before, half].into_iter().filter(|body| !body.is_empty()) {
            let reply = ScriptedReply::open_stream().bytes(chunk(&body));
            for reply in [reply.clone().close(), reply.end()] {
                let fault = call(reply).fault();
                assert_eq!((fault.kind, fault.billed), (FaultKind::Truncated, true), "{count}");
            }
        }
    }
}

#[test]
fn a_damaged_message_is_a_transient_fault() {
    let mut body = messages(&one(Wire::Anthropic, "text")).concat();
    let middle = body.len() / 2;
    body[middle] ^= 1;
    let fault = call(bedrock::stream(&body, 100)).fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::Protocol, FaultClass::Transient));
    assert!(fault.message.contains("wrong checksum"), "{}", fault.message);
}

/// Fault L37.
#[test]
fn unknown_messages_are_ignored() {
    let recording = one(Wire::Anthropic, "text");
    let unknown = [(":message-type", "event"), (":event-type", "news")];
    let unknown = bedrock::message(&unknown, b"neither JSON nor anything else");
    let body: Vec<u8> =
        messages(&recording).into_iter().flat_map(|m| [unknown.clone(), m].concat()).collect();
    assert_eq!(seen(&call(bedrock::stream(&body, 100)).reply()), recording.expected);
}

/// Fault L34: each exception of the operation, and an error without a model.
#[test]
fn an_exception_in_a_stream_is_classified() {
    let start = &messages(&one(Wire::Anthropic, "text"))[..4];
    let too_long =
        "The model returned the following errors: Input is too long for requested model.";
    let error =
        [(":message-type", "error"), (":error-code", "InternalError"), (":error-message", "m")];
    for (end, kind) in [
        (
            bedrock::exception("throttlingException", "Too many tokens, please wait"),
            FaultKind::RateLimited,
        ),
        (bedrock::exception("modelStreamErrorException", "m"), FaultKind::Server),
        (bedrock::exception("modelTimeoutException", "m"), FaultKind::Server),
        (bedrock::exception("internalServerException", "m"), FaultKind::Server),
        (bedrock::exception("serviceUnavailableException", "m"), FaultKind::Server),
        (bedrock::exception("validationException", "m"), FaultKind::Request),
        (bedrock::exception("validationException", too_long), FaultKind::Overflow),
        (bedrock::message(&error, b""), FaultKind::Server),
    ] {
        let body = [start.concat(), end].concat();
        let called = call(bedrock::stream(&body, 100));
        assert!(!called.streamed().is_empty(), "the text before it is reported");
        let fault = called.fault();
        assert_eq!((fault.kind, fault.billed), (kind, true), "{}", fault.message);
    }
}

/// Faults L10, L11, L13 and L18, in the words of Amazon.
#[test]
fn an_error_response_is_classified() {
    for (status, kind, body, expected) in [
        (400, "ValidationException", "Malformed input request", FaultKind::Request),
        (400, "ValidationException", "Input is too long for requested model.", FaultKind::Overflow),
        (400, "ExpiredTokenException", "m", FaultKind::Auth),
        (403, "AccessDeniedException", "You don't have access to the model", FaultKind::Auth),
        (403, "InvalidSignatureException", "Signature expired", FaultKind::Auth),
        (404, "ResourceNotFoundException", "m", FaultKind::Request),
        (408, "ModelTimeoutException", "m", FaultKind::Server),
        (424, "ModelErrorException", "m", FaultKind::Server),
        (429, "ThrottlingException", "Too many tokens, please wait", FaultKind::RateLimited),
        (500, "InternalServerException", "m", FaultKind::Server),
        (503, "ServiceUnavailableException", "m", FaultKind::Server),
    ] {
        let kind = format!("{kind}:http://internal.example.com/");
        let body = json!({"message": body}).to_string();
        let reply = ScriptedReply::with_headers(status, &[("x-amzn-errortype", &kind)], &body);
        let fault = call(reply).fault();
        assert_eq!(fault.kind, expected, "{status} {kind}");
    }
}

#[test]
fn a_request_is_signed_and_names_the_model_in_its_path() {
    let server = Server::new([bedrock::text("done")]);
    caller(&server).call().reply();
    let request = &server.requests()[0];
    let path = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke-with-response-stream";
    assert_eq!(request.path, path);
    let prefix = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-west-1/bedrock/aws4_request, \
                  SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=";
    let signature = request.header("authorization").unwrap().strip_prefix(prefix).unwrap();
    assert!(signature.len() == 64 && signature.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(request.header("x-amz-date"), Some("20150830T123600Z"));
    assert_eq!(request.header("x-amz-security-token"), Some("canary-token-0123456789"));
    assert_eq!(request.header("anthropic-version"), None);
    let body = request.json();
    assert_eq!(body["anthropic_version"], "bedrock-2023-05-31");
    assert_eq!(body["max_tokens"], 32_000, "the model is known by its maker's name");
    assert!(body.get("model").is_none() && body.get("stream").is_none(), "{body}");
}

#[test]
fn an_api_key_is_sent_without_a_signature() {
    let server = Server::new([bedrock::text("done")]);
    let env = |name: &str| {
        if name == "AWS_BEARER_TOKEN_BEDROCK" { Some(KEY.to_owned()) } else { env(name) }
    };
    WireCaller::with_env(MODEL, &settings(&server), &env).unwrap().call().reply();
    let request = &server.requests()[0];
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(request.header("x-amz-date"), None);
}

/// Returns an environment whose profile has a command that prints other keys each time, valid until `expiration`.
fn command_profile(folder: &Path, expiration: &str) -> impl Fn(&str) -> Option<String> + use<> {
    let count = folder.join("count").display().to_string();
    let json = format!(
        r#"{{"Version":1,"AccessKeyId":"AK%s","SecretAccessKey":"{KEY}","SessionToken":"t%s","Expiration":"{expiration}"}}"#
    );
    let script =
        format!("printf x >> {count}; n=$(wc -c < {count} | tr -d ' '); printf '{json}' $n $n");
    let path = folder.join("config").display().to_string();
    fs::write(&path, format!("[default]\nregion = eu-west-1\ncredential_process = {script}\n"))
        .unwrap();
    move |name| (name == "AWS_CONFIG_FILE").then(|| path.clone())
}

/// Returns the names of the keys of all requests.
fn key_names(server: &Server) -> Vec<String> {
    let name = |header: &str| header.split(['=', '/']).nth(1).unwrap().to_owned();
    server.requests().iter().map(|request| name(request.header("authorization").unwrap())).collect()
}

#[test]
fn keys_of_a_command_are_used_until_they_expire() {
    for (expiration, names) in
        [("2015-08-30T12:38:00Z", ["AK1", "AK1"]), ("2015-08-30T12:36:30Z", ["AK1", "AK2"])]
    {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new([bedrock::text("one"), bedrock::text("two")]);
        let env = command_profile(folder.path(), expiration);
        let mut caller = WireCaller::with_env(MODEL, &settings(&server), &env).unwrap();
        assert!(!folder.path().join("count").exists(), "nothing runs before the first request");
        caller.call().reply();
        caller.call().reply();
        assert_eq!(key_names(&server), names, "{expiration}");
    }
}

#[test]
fn rejected_keys_are_replaced_and_the_request_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let body = json!({"message": format!("The security token {KEY} is expired")}).to_string();
    let expired =
        ScriptedReply::with_headers(403, &[("x-amzn-errortype", "ExpiredTokenException")], &body);
    let server = Server::new([expired.clone(), bedrock::text("done")]);
    let env = command_profile(folder.path(), "2015-08-30T20:00:00Z");
    let mut caller = WireCaller::with_env(MODEL, &settings(&server), &env).unwrap();
    let fault = caller.call().fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::Auth, FaultClass::Transient));
    caller.call().reply();
    assert_eq!(key_names(&server), ["AK1", "AK2"]);
    // Keys that don't change are not tried again.
    let fault = call(expired).fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::Auth, FaultClass::Fatal));
    assert!(fault.message.ends_with(
        "the keys are those in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
    ));
}

/// A command that prints other keys each time does not help against a permission that is missing.
#[test]
fn only_one_replacement_of_rejected_keys_is_tried_in_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let denied = ScriptedReply::with_length(403, r#"{"message":"not authorized"}"#);
    let replies = [denied.clone(), denied.clone(), bedrock::text("done"), denied];
    let server = Server::new(replies);
    let env = command_profile(folder.path(), "2015-08-30T20:00:00Z");
    let mut caller = WireCaller::with_env(MODEL, &settings(&server), &env).unwrap();
    assert_eq!(caller.call().fault().class(), FaultClass::Transient);
    assert_eq!(caller.call().fault().class(), FaultClass::Fatal);
    // An accepted request begins again.
    caller.call().reply();
    assert_eq!(caller.call().fault().class(), FaultClass::Transient);
    assert_eq!(key_names(&server), ["AK1", "AK2", "AK2", "AK2"]);
}

#[test]
fn what_is_missing_is_reported_on_connect() {
    let settings = ModelConnectionSettings { api_base: None, ..settings(&Server::new([])) };
    let error = |settings: &ModelConnectionSettings, set: &[&str]| {
        let env = |name: &str| set.contains(&name).then(|| env(name).unwrap());
        WireCaller::with_env(MODEL, settings, &env).err().unwrap()
    };
    let region = error(&settings, &["AWS_ACCESS_KEY_ID"]);
    let expected = "the address of bedrock is incomplete: the variable AWS_REGION or AWS_DEFAULT_REGION is not set";
    assert_eq!(region.to_string(), expected);
    let keys = error(&settings, &["AWS_REGION", "AWS_ACCESS_KEY_ID"]);
    assert!(matches!(keys, ConnectError::Credentials(_)), "{keys}");
    let no_clock = ModelConnectionSettings { clock: None, ..settings };
    let all = ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    assert!(matches!(error(&no_clock, &all), ConnectError::MissingClock("bedrock")));
}

#[test]
fn a_recording_has_no_keys_and_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let recording = one(Wire::Anthropic, "tool");
    let body = messages(&recording).concat();
    let error =
        ScriptedReply::with_headers(429, &[("x-amzn-errortype", "ThrottlingException")], "{}");
    let server = Server::new([bedrock::stream(&body, 50), error]);
    let recorder = Some(Recorder::create(Path::new("/nowhere"), &path).unwrap());
    let settings = ModelConnectionSettings { recorder, ..settings(&server) };
    let mut live = WireCaller::with_env(MODEL, &settings, &env).unwrap();
    let outcome = |caller: &mut WireCaller| -> (Value, FaultKind) {
        let reply = caller.call().reply();
        let seen = seen(&reply);
        caller.add_reply(reply);
        (seen, caller.call().fault().kind)
    };
    let expected = outcome(&mut live);
    assert_eq!(expected, (recording.expected, FaultKind::RateLimited));
    let text = fs::read_to_string(&path).unwrap();
    for hidden in [KEY, "canary-token", "AKIDEXAMPLE", "AWS4-HMAC"] {
        assert!(!text.contains(hidden), "{hidden} is recorded");
    }
    let name = format!("replay/{}", path.display());
    let offline = ModelConnectionSettings { api_base: None, recorder: None, ..settings };
    let mut player = WireCaller::with_env(&name, &offline, &|_| None).unwrap();
    assert_eq!(outcome(&mut player), expected);
}
