//! A span of a trace.

use jiff::Timestamp;

use super::ids::SpanId;

/// An operation with a duration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OtelSpan {
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Timestamp,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) events: Vec<SpanEvent>,
    /// Why it failed, if it did.
    pub(super) error: Option<String>,
}

/// An event within a span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SpanEvent {
    pub(super) at: Timestamp,
    pub(super) name: &'static str,
}

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// Within the process.
    Internal,
    /// A request to a remote service.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(u64),
    Float(f64),
    List(Vec<String>),
}

impl OtelSpan {
    /// Adds an attribute.
    pub(super) fn set_attribute(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        self.attributes.push((name, value.into()));
    }

    /// Marks the span as failed; `kind` has few values.
    pub(super) fn set_error(&mut self, kind: impl Into<String>, message: impl Into<String>) {
        self.set_attribute("error.type", kind.into());
        self.error = Some(message.into());
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<Vec<String>> for AttributeValue {
    fn from(texts: Vec<String>) -> Self {
        Self::List(texts)
    }
}
