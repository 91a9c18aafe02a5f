//! Classifies error responses.

use std::hash::{BuildHasher as _, RandomState};

use serde_json::Value;

use super::api_error::{ApiError, is_missing_model, is_unpaired, kind_of_text};
use super::masking::{excerpt, readable};
use crate::net::{HeaderMap, HeaderValue, MAX_RETRY_DELAY, Secrets, mask_address, retry_after};
use crate::types::{Fault, FaultKind, RetryAdvice, TimeSpan};

/// The minimum delay after an overload, unless the provider requests another one.
const OVERLOADED_WAIT: TimeSpan = TimeSpan::from_secs(5);

/// Returns the delay after an overload: random, up to twice the minimum, so that runs that were rejected together do
/// not return together.
fn overloaded_wait() -> TimeSpan {
    let random = RandomState::new().hash_one(());
    TimeSpan(OVERLOADED_WAIT.0 + random % OVERLOADED_WAIT.0)
}

/// The advice to the user if a provider misses the result of a call.
const UNPAIRED_ADVICE: &str = "each call that was sent has its answer: a server in between may have changed the request, or \
                        this is a defect; `--record FILE` keeps the request to report it with";

/// Returns the fault of an error response, by its text or else by its status.
///
/// `body` is the body or its beginning. `url` is shown in messages, without its parameters.
pub(crate) fn classify_response(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    url: &str,
    masker: &Secrets,
) -> Fault {
    let (text, url) = (String::from_utf8_lossy(body), mask_address(url));
    // In reply to a streaming request, some servers send the error as an event.
    let json: Option<Value> = serde_json::from_str(&text).ok().or_else(|| first_event(&text));
    let mut error = json.as_ref().and_then(ApiError::find);
    if let Some(kind) = headers.get("x-amzn-errortype").and_then(|kind| kind.to_str().ok()) {
        // A namespace follows the kind.
        let kind = kind.split(':').next().unwrap_or_default().to_lowercase();
        error.get_or_insert_default().kind = kind;
    }
    let by_text = error.as_ref().and_then(kind_of_text);
    let reported = error.as_ref().and_then(|error| error.status);
    let by_status = kind_of_status(if status < 400 { reported.unwrap_or(status) } else { status });
    let kind = match (status, by_text) {
        (300..=399, _) => FaultKind::NotAnApi,
        // Status 401 means a rejected key, whatever the text is.
        (401, _) => FaultKind::Auth,
        (402, _) => FaultKind::Quota,
        // Some servers report every error as internal; a retry does not help against a missing model.
        (404, Some(FaultKind::Server)) => FaultKind::Request,
        // The text of a server error is not reliable.
        (500.., Some(FaultKind::Overflow | FaultKind::Quota | FaultKind::RateLimited)) => {
            by_text.unwrap_or(by_status)
        }
        (500.., _) => by_status,
        (_, Some(kind)) => kind,
        (_, None) => by_status,
    };
    let kind = match (kind, &error) {
        (FaultKind::Request, Some(error)) if is_missing_model(status, error) => {
            FaultKind::MissingModel
        }
        _ => kind,
    };
    let reported_text = match &error {
        Some(error) if !error.message.trim().is_empty() => error.message.clone(),
        _ if text.trim().is_empty() => "no message".to_owned(),
        _ => excerpt(body),
    };
    let message = match status {
        300..=399 => {
            let to = headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            format!("{url} redirects to {}, which is not followed", mask_address(to))
        }
        200..=299 => format!("{url} returned an error: {reported_text}"),
        404 => format!("{url} returned {status}: {reported_text}"),
        _ => format!("the provider returned {status}: {reported_text}"),
    };
    let is_overloaded =
        status == 529 || error.is_some_and(|error| error.kind.contains("overloaded"));
    let asked = retry_after(headers).or_else(|| json.as_ref().and_then(wait_in_details));
    let message = match asked {
        Some(MAX_RETRY_DELAY) => format!("{message}; it asks to wait for a year or longer"),
        Some(wait) => format!("{message}; it asks to wait {} s", wait.as_secs_f64()),
        None => message,
    };
    let wait = asked
        .or_else(|| wait_by_text(&reported_text))
        .or_else(|| is_overloaded.then(overloaded_wait));
    let retry = match headers.get("x-should-retry").map(HeaderValue::as_bytes) {
        Some(b"true") => RetryAdvice::Retry,
        Some(b"false") => RetryAdvice::GiveUp,
        _ => RetryAdvice::Unspecified,
    };
    let message = match kind {
        FaultKind::Request if is_unpaired(&reported_text) => {
            format!("{message} ({UNPAIRED_ADVICE})")
        }
        _ => message,
    };
    let message = readable(&masker.mask_all(&message));
    Fault { advice: retry, retry_after: wait, billed: status < 300, ..Fault::new(kind, message) }
}

/// Returns the fault of an error in a reply.
pub(crate) fn classify_stream_error(error: &ApiError) -> Fault {
    let kind = kind_of_text(error);
    let kind = kind.or_else(|| error.status.map(kind_of_status)).unwrap_or(FaultKind::Server);
    let reported_text = if error.message.is_empty() { &error.kind } else { &error.message };
    let wait = wait_by_text(reported_text)
        .or_else(|| error.kind.contains("overloaded").then(overloaded_wait));
    Fault {
        retry_after: wait,
        ..Fault::new(kind, format!("the provider reported an error in its reply: {reported_text}"))
    }
}

/// Returns the fault of an error object in a reply.
pub(crate) fn reply_error(json: &str) -> Fault {
    let error: Option<Value> = serde_json::from_str(json).ok();
    classify_stream_error(&error.as_ref().and_then(ApiError::from_value).unwrap_or_default())
}

/// Returns the data of the first event in a text.
fn first_event(text: &str) -> Option<Value> {
    let data = text.lines().find_map(|line| line.strip_prefix("data:"))?;
    serde_json::from_str(data.trim()).ok()
}

/// Returns the kind of fault for a status.
fn kind_of_status(status: u16) -> FaultKind {
    match status {
        401 | 403 => FaultKind::Auth,
        402 => FaultKind::Quota,
        408 | 409 | 425 => FaultKind::Server,
        413 => FaultKind::Overflow,
        429 => FaultKind::RateLimited,
        500.. => FaultKind::Server,
        400..=499 => FaultKind::Request,
        _ => FaultKind::NotAnApi,
    }
}

/// Returns the delay in the details of Google's errors: `"retryDelay": "51.8s"`.
fn wait_in_details(answer: &Value) -> Option<TimeSpan> {
    match answer {
        Value::Array(items) => items.iter().find_map(wait_in_details),
        Value::Object(map) => match map.get("retryDelay") {
            Some(Value::String(delay)) => parse_duration(delay),
            _ => ["error", "details"].iter().find_map(|key| wait_in_details(map.get(*key)?)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Returns the delay in an error text: "try again in 446ms", "in 7.5s", "in 1m30s".
fn wait_by_text(text: &str) -> Option<TimeSpan> {
    let lower = text.to_lowercase();
    let words = ["again in ", "retry in ", "retry after "];
    let at = words.iter().find_map(|words| Some(lower.find(words)? + words.len()))?;
    parse_duration(&lower[at..])
}

/// Parses the duration at the start of a text: `446ms`, `7.5s`, `1m30s`, `20 seconds`.
fn parse_duration(text: &str) -> Option<TimeSpan> {
    let (mut rest, mut sum, mut found) = (text, 0.0, false);
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, later) = rest.split_at(digits);
        let Ok(number) = number.trim_end_matches('.').parse::<f64>() else { break };
        let unit = later.trim_start();
        let (factor, length) = match unit {
            _ if unit.starts_with("ms") || unit.starts_with("milli") => (0.001, 2),
            _ if unit.starts_with('s') => (1.0, 1),
            _ if unit.starts_with('m') => (60.0, 1),
            _ if unit.starts_with('h') => (3_600.0, 1),
            _ => break,
        };
        sum += number * factor;
        found = true;
        rest = &unit[length..];
    }
    let micros = sum * 1e6;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // only digits, so never negative
    (found && micros.is_finite()).then_some(TimeSpan(micros as u64).min(MAX_RETRY_DELAY))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::net::{HeaderName, Secret};
    use crate::types::FaultClass;

    fn header_map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let value = |value| HeaderValue::from_static(value);
        headers.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
    }

    fn fault_with(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Fault {
        let (map, url) = (header_map(headers), "https://api.example.com/v1/chat");
        let masker = Secrets::from_keys([Secret::new("canary-key").unwrap()]);
        classify_response(status, &map, body.as_bytes(), url, &masker)
    }

    fn fault(status: u16, body: &str) -> Fault {
        fault_with(status, &[], body)
    }

    /// Faults L10 to L17, L24 and L25.
    #[test]
    fn each_status_maps_to_its_fault() {
        use FaultKind::{Auth, NotAnApi, Overflow, Quota, RateLimited, Request, Server};
        for (status, kind) in [
            (301, NotAnApi),
            (308, NotAnApi),
            (400, Request),
            (401, Auth),
            (402, Quota),
            (403, Auth),
            (404, Request),
            (408, Server),
            (409, Server),
            (413, Overflow),
            (418, Request),
            (422, Request),
            (429, RateLimited),
            (500, Server),
            (502, Server),
            (503, Server),
            (504, Server),
            (520, Server),
            (526, Server),
            (529, Server),
            (599, Server),
        ] {
            assert_eq!(fault(status, "").kind, kind, "{status}");
            assert_eq!(fault(status, "<html>sorry</html>").kind, kind, "{status}");
        }
    }

    #[test]
    fn an_error_event_is_classified_like_a_response() {
        let event = "event: error\ndata: {\"error\":{\"message\":\"too long\",\"code\":\"context_length_exceeded\"}}\n\n";
        let fault = fault(400, event);
        assert_eq!(fault.kind, FaultKind::Overflow);
        assert_eq!(&*fault.message, "the provider returned 400: too long");
    }

    #[test]
    fn the_error_text_refines_the_status() {
        let error = |code: &str| format!(r#"{{"error":{{"message":"m","code":"{code}"}}}}"#);
        assert_eq!(fault(400, &error("context_length_exceeded")).kind, FaultKind::Overflow);
        assert_eq!(fault(429, &error("insufficient_quota")).kind, FaultKind::Quota);
        assert_eq!(fault(401, &error("context_length_exceeded")).kind, FaultKind::Auth);
        assert_eq!(fault(500, &error("invalid_request")).kind, FaultKind::Server);
        assert_eq!(fault(500, &error("exceed_context_size")).kind, FaultKind::Overflow);
        assert_eq!(fault(200, &error("server_error")).kind, FaultKind::Server);
        assert_eq!(
            fault(200, r#"{"error":{"code":429,"message":"m"}}"#).kind,
            FaultKind::RateLimited
        );
    }

    /// Another model may answer in this case, but not if the path is wrong.
    #[test]
    fn a_missing_model_is_recognized() {
        let error = |kind: &str, text: &str| {
            format!(r#"{{"error":{{"message":"{text}","type":"{kind}"}}}}"#)
        };
        for (status, kind, text) in [
            (404, "invalid_request_error", "The model `gpt-9` does not exist"),
            (404, "not_found_error", "model: claude-9"),
            (404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta"),
            (404, "DeploymentNotFound", "The API deployment for this resource does not exist."),
            (404, "api_error", "model 'qwen9' not found"),
            (400, "", "vendor/model-9 is not a valid model ID"),
            (400, "invalid_model", "Invalid model: m-9"),
            (400, "validationexception", "The provided model identifier is invalid."),
        ] {
            assert_eq!(fault(status, &error(kind, text)).kind, FaultKind::MissingModel, "{text}");
        }
        for (status, kind, text) in [
            (404, "", "Not Found"),
            (400, "invalid_request_error", "Unsupported parameter for this model"),
            (403, "permission_error", "no access to this model"),
        ] {
            assert_ne!(fault(status, &error(kind, text)).kind, FaultKind::MissingModel, "{text}");
        }
    }

    /// Faults L18 to L22, and Gemini's delay in the body.
    #[test]
    fn the_retry_delay_is_found_in_headers_details_and_text() {
        let wait = |headers, body: &str| fault_with(429, headers, body).retry_after;
        assert_eq!(wait(&[("retry-after", "7")], ""), Some(TimeSpan::from_secs(7)));
        assert_eq!(wait(&[("retry-after", "soon")], ""), None);
        let details = r#"[{"error":{"message":"m","details":[{"@type":"x.RetryInfo","retryDelay":"51.5s"}]}}]"#;
        assert_eq!(wait(&[], details), Some(TimeSpan::from_millis(51_500)));
        for (text, millis) in [
            ("Please try again in 446ms. Visit", 446),
            ("Please try again in 7.5s.", 7_500),
            ("Rate limited. Try again in 1m30s", 90_000),
            ("please retry in 20 seconds", 20_000),
            ("Retry after 3 s", 3_000),
        ] {
            let body = format!(r#"{{"error":{{"message":"{text}"}}}}"#);
            assert_eq!(wait(&[], &body), Some(TimeSpan::from_millis(millis)), "{text}");
        }
        assert_eq!(wait(&[], r#"{"error":"try again in a while"}"#), None);
        let digits = "9".repeat(20);
        let details = format!(r#"{{"error":{{"details":[{{"retryDelay":"{digits}s"}}]}}}}"#);
        for (header, body) in [(digits.as_str(), ""), ("", details.as_str())] {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", HeaderValue::from_str(header).unwrap());
            let masker = Secrets::default();
            let fault = classify_response(429, &headers, body.as_bytes(), "", &masker);
            assert_eq!(fault.retry_after, Some(MAX_RETRY_DELAY));
            let expected = "; it asks to wait for a year or longer";
            assert!(fault.message.ends_with(expected), "{}", fault.message);
        }
        let waits: BTreeSet<_> = (0..9).filter_map(|_| fault(529, "").retry_after).collect();
        let longest = TimeSpan::from_secs(10);
        assert!(waits.iter().all(|wait| (OVERLOADED_WAIT..longest).contains(wait)), "{waits:?}");
        assert!(waits.len() > 1, "all wait for the same time");
    }

    /// Fault L23.
    #[test]
    fn should_retry_headers_are_honoured() {
        let class = |status, advice| fault_with(status, &[("x-should-retry", advice)], "").class();
        assert_eq!(class(503, "false"), FaultClass::Fatal);
        assert_eq!(class(400, "true"), FaultClass::Transient);
        assert_eq!(class(503, "maybe"), FaultClass::Transient);
    }

    /// Faults L9, L10 and L13.
    #[test]
    fn the_message_has_the_error_text_and_no_key() {
        let body = r#"{"error":{"message":"bad key canary-key\u001b[2J"}}"#;
        let message = fault(401, body).message;
        assert_eq!(&*message, "the provider returned 401: bad key ***\\u{1b}[2J");
        let moved = fault_with(302, &[("location", "https://login.example.com")], "");
        assert!(moved.message.contains("redirects to https://login.example.com"));
        let (to, masker) = ([("location", "https://h/?key=canary")], Secrets::default());
        let moved =
            classify_response(307, &header_map(&to), b"", "https://h/v1?key=canary", &masker);
        let expected =
            "https://h/v1?key=*** redirects to https://h/?key=***, which is not followed";
        assert_eq!(&*moved.message, expected);
        assert!(fault(404, "").message.contains("https://api.example.com/v1/chat"));
        assert!(fault(400, &"x".repeat(100_000)).message.len() < 2_100);
    }
}
