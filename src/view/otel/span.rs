//! Spans of a trace, and their encoding: OTLP in JSON, where ids are hexadecimal and large numbers are strings.

use jiff::Timestamp;
use serde_json::{Value, json};

/// An operation with a duration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OtelSpan {
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Timestamp,
    /// As OTLP writes them, like the events.
    pub(super) attributes: Vec<Value>,
    pub(super) events: Vec<Value>,
    /// Why it failed, if it did.
    pub(super) error: Option<String>,
}

/// The kind of a span, with its number in OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// Within the process.
    Internal = 1,
    /// A request to a remote service.
    Client = 3,
}

impl OtelSpan {
    /// Adds an attribute with a value as OTLP writes it.
    pub(super) fn set(&mut self, key: &str, value: &Value) {
        self.attributes.push(json!({ "key": key, "value": value }));
    }

    pub(super) fn set_text(&mut self, key: &str, text: &str) {
        self.set(key, &json!({ "stringValue": text }));
    }

    pub(super) fn set_number(&mut self, key: &str, number: impl Into<u64>) {
        self.set(key, &json!({ "intValue": number.into().to_string() }));
    }

    pub(super) fn set_float(&mut self, key: &str, number: f64) {
        self.set(key, &json!({ "doubleValue": number }));
    }

    /// Marks the span as failed; `kind` has few values.
    pub(super) fn set_error(&mut self, kind: &str, message: &str) {
        self.set_text("error.type", kind);
        self.error = Some(message.to_owned());
    }

    /// Adds an event within the span.
    pub(super) fn add_event(&mut self, at: Timestamp, name: &str) {
        self.events.push(json!({ "timeUnixNano": nanos(at), "name": name }));
    }

    fn encode(&self, trace: u128) -> Value {
        let mut span = json!({
            "traceId": format!("{trace:032x}"),
            "spanId": format!("{:016x}", self.id),
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": nanos(self.started_at),
            "endTimeUnixNano": nanos(self.ended_at.max(self.started_at)),
            "attributes": self.attributes,
            "status": match &self.error {
                None => json!({ "code": 0 }),
                Some(message) => json!({ "code": 2, "message": message }),
            },
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        if !self.events.is_empty() {
            span["events"] = json!(self.events);
        }
        span
    }
}

/// Returns the body of a request.
pub(super) fn encode_body(
    trace: u128,
    resource: &[(String, String)],
    spans: &[OtelSpan],
) -> Vec<u8> {
    let attribute =
        |(key, text): &(String, String)| json!({ "key": key, "value": { "stringValue": text } });
    let attributes: Vec<Value> = resource.iter().map(attribute).collect();
    let scope = json!({ "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") });
    let spans: Vec<Value> = spans.iter().map(|span| span.encode(trace)).collect();
    let scope_spans = json!([{ "scope": scope, "spans": spans }]);
    let resource = json!({ "attributes": attributes });
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": scope_spans }] })
        .to_string()
        .into_bytes()
}

fn nanos(time: Timestamp) -> String {
    time.as_nanosecond().max(0).to_string()
}
