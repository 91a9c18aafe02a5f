//! Spans of a trace, and their OTLP encoding in JSON, where ids are hexadecimal and large numbers are strings.

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
    /// The attributes in their OTLP form. The events are in that form, too.
    pub(super) attributes: Vec<Value>,
    pub(super) events: Vec<Value>,
    /// The error of a failed operation.
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
    /// Adds an attribute, with its value in the OTLP form.
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

    /// Marks the span as failed. `kind` is one of few values.
    pub(super) fn set_error(&mut self, kind: &str, message: &str) {
        self.set_text("error.type", kind);
        self.error = Some(message.to_owned());
    }

    /// Adds an event within the span.
    pub(super) fn add_event(&mut self, at: Timestamp, name: &str) {
        self.events.push(json!({ "timeUnixNano": nanos(at), "name": name }));
    }

    /// Returns the value of an attribute as text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let attribute = self.attributes.iter().find(|attribute| attribute["key"] == key)?;
        attribute["value"].as_object()?.values().next()?.as_str()
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

/// Returns the body of a request that sends spans.
pub(super) fn encode_spans(
    trace: u128,
    resource: &[(String, String)],
    spans: &[OtelSpan],
) -> Vec<u8> {
    let spans: Vec<Value> = spans.iter().map(|span| span.encode(trace)).collect();
    let scope_spans = json!([{ "scope": encode_scope(), "spans": spans }]);
    let resource = encode_resource(resource);
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": scope_spans }] })
        .to_string()
        .into_bytes()
}

/// Returns the resource: this process as the origin of spans or metrics.
pub(super) fn encode_resource(resource: &[(String, String)]) -> Value {
    let attributes: Vec<Value> =
        resource.iter().map(|(key, text)| text_attribute(key, text)).collect();
    json!({ "attributes": attributes })
}

/// Returns the scope: the program as the instrumentation of spans and metrics.
pub(super) fn encode_scope() -> Value {
    json!({ "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") })
}

/// Returns a text attribute.
pub(super) fn text_attribute(key: &str, text: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": text } })
}

/// Returns a time in the OTLP form: nanoseconds since 1970, as a string.
pub(super) fn nanos(time: Timestamp) -> String {
    time.as_nanosecond().max(0).to_string()
}
