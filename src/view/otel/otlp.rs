//! Encodes spans as OTLP in JSON, where ids are hexadecimal and large numbers are strings.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Serialize;

use super::ids::{SpanId, TraceId};
use super::span::{AttributeValue, OtelSpan, SpanEvent, SpanKind};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportTraceServiceRequest<'a> {
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
    scope: InstrumentationScope,
    spans: Vec<OtlpSpan<'a>>,
}

#[derive(Serialize)]
struct InstrumentationScope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpSpan<'a> {
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
    events: Vec<OtlpEvent>,
    status: OtlpStatus<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpEvent {
    time_unix_nano: String,
    name: &'static str,
}

#[derive(Serialize)]
struct OtlpStatus<'a> {
    code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'a str,
    value: Cow<'a, AttributeValue>,
}

/// Returns the body of a request.
///
/// # Errors
///
/// Fails for a number that JSON cannot express.
pub(super) fn encode_body(
    trace: TraceId,
    resource: &[(String, String)],
    spans: &[OtelSpan],
) -> Result<Vec<u8>, serde_json::Error> {
    let attributes = resource
        .iter()
        .map(|(key, value)| KeyValue {
            key,
            value: Cow::Owned(AttributeValue::Text(value.clone())),
        })
        .collect();
    let scope =
        InstrumentationScope { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") };
    let spans = spans.iter().map(|span| otlp_span(trace, span)).collect();
    serde_json::to_vec(&ExportTraceServiceRequest {
        resource_spans: [ResourceSpans {
            resource: Resource { attributes },
            scope_spans: [ScopeSpans { scope, spans }],
        }],
    })
}

fn otlp_span(trace_id: TraceId, span: &OtelSpan) -> OtlpSpan<'_> {
    OtlpSpan {
        trace_id,
        span_id: span.id,
        parent_span_id: span.parent,
        name: &span.name,
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Client => 3,
        },
        start_time_unix_nano: nanos(span.started_at),
        end_time_unix_nano: nanos(span.ended_at.max(span.started_at)),
        attributes: span
            .attributes
            .iter()
            .map(|(key, value)| KeyValue { key, value: Cow::Borrowed(value) })
            .collect(),
        events: span.events.iter().map(otlp_event).collect(),
        status: match &span.error {
            None => OtlpStatus { code: 0, message: None },
            Some(message) => OtlpStatus { code: 2, message: Some(message) },
        },
    }
}

fn otlp_event(event: &SpanEvent) -> OtlpEvent {
    OtlpEvent { time_unix_nano: nanos(event.at), name: event.name }
}

fn nanos(time: Timestamp) -> String {
    time.as_nanosecond().max(0).to_string()
}
