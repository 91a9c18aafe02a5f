//! Spans on the wire: OTLP in its JSON form, where ids are hexadecimal and large numbers are strings.

use jiff::Timestamp;
use serde::Serialize;

use super::ids::{SpanId, TraceId};
use super::span::{Attribute, Happening, Span, SpanKind};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<WireSpan<'a>>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireSpan<'a> {
    trace_id: TraceId,
    span_id: SpanId,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<SpanId>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<WireEvent>,
    status: WireStatus<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireEvent {
    time_unix_nano: String,
    name: &'static str,
}

#[derive(Serialize)]
struct WireStatus<'a> {
    code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
enum AnyValue<'a> {
    #[serde(rename = "stringValue")]
    Text(&'a str),
    #[serde(rename = "intValue")]
    Number(String),
    #[serde(rename = "doubleValue")]
    Real(f64),
    #[serde(rename = "arrayValue")]
    List { values: Vec<AnyValue<'a>> },
}

/// Returns the body of a request.
///
/// # Errors
///
/// Fails for a number that JSON cannot express.
pub(super) fn body(
    trace: TraceId,
    resource: &[(String, String)],
    spans: &[Span],
) -> Result<Vec<u8>, serde_json::Error> {
    let attributes = resource
        .iter()
        .map(|(key, value)| KeyValue { key, value: AnyValue::Text(value) })
        .collect();
    let scope = Scope { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") };
    let spans = spans.iter().map(|span| wire_span(trace, span)).collect();
    serde_json::to_vec(&Request {
        resource_spans: [ResourceSpans {
            resource: Resource { attributes },
            scope_spans: [ScopeSpans { scope, spans }],
        }],
    })
}

fn wire_span(trace_id: TraceId, span: &Span) -> WireSpan<'_> {
    WireSpan {
        trace_id,
        span_id: span.id,
        parent_span_id: span.parent,
        name: &span.name,
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Client => 3,
        },
        start_time_unix_nano: nanos(span.began),
        end_time_unix_nano: nanos(span.ended.max(span.began)),
        attributes: span
            .attributes
            .iter()
            .map(|(key, value)| KeyValue { key, value: any_value(value) })
            .collect(),
        events: span.events.iter().map(wire_event).collect(),
        status: match &span.error {
            None => WireStatus { code: 0, message: None },
            Some(message) => WireStatus { code: 2, message: Some(message) },
        },
    }
}

fn wire_event(happening: &Happening) -> WireEvent {
    WireEvent { time_unix_nano: nanos(happening.at), name: happening.name }
}

fn any_value(value: &Attribute) -> AnyValue<'_> {
    match value {
        Attribute::Text(text) => AnyValue::Text(text),
        Attribute::Number(number) => AnyValue::Number(number.to_string()),
        Attribute::Real(number) => AnyValue::Real(*number),
        Attribute::Texts(texts) => {
            AnyValue::List { values: texts.iter().map(|text| AnyValue::Text(text)).collect() }
        }
    }
}

fn nanos(time: Timestamp) -> String {
    time.as_nanosecond().max(0).to_string()
}
