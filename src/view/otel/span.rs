//! A span of a trace.

use jiff::Timestamp;
use serde::Serialize;

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

/// The value of an attribute, as OTLP writes it in JSON: large numbers are strings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) enum AttributeValue {
    #[serde(rename = "stringValue")]
    Text(String),
    #[serde(rename = "intValue")]
    Number(String),
    #[serde(rename = "doubleValue")]
    Float(f64),
    #[serde(rename = "arrayValue")]
    List { values: Vec<AttributeValue> },
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

macro_rules! attribute_values {
    ($($type:ty => |$value:ident| $attribute:expr;)*) => {
        $(impl From<$type> for AttributeValue {
            fn from($value: $type) -> Self {
                $attribute
            }
        })*
    };
}

attribute_values! {
    &str => |text| Self::Text(text.to_owned());
    String => |text| Self::Text(text);
    u64 => |number| Self::Number(number.to_string());
    u32 => |number| Self::Number(number.to_string());
    f64 => |number| Self::Float(number);
    Vec<String> => |texts| Self::List { values: texts.into_iter().map(Self::Text).collect() };
}
