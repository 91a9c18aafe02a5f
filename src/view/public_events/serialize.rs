//! Serializers for amounts, including amounts that may be unknown.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::machine::StopReason;
use crate::types::{MicroUsd, RunTime, Sha256Digest, TimeSpan, Tokens, Usage};

/// The usage of one or several model calls. Input includes cached input; output includes reasoning.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Usage")]
pub(in crate::view) struct TokenUsage {
    #[serde(rename = "input_tokens")]
    input: Tokens,
    #[serde(rename = "output_tokens")]
    output: Tokens,
    #[serde(rename = "cached_input_tokens")]
    cached_input: Tokens,
    #[serde(rename = "cache_write_tokens")]
    cache_write: Tokens,
    #[serde(rename = "reasoning_tokens")]
    reasoning: Tokens,
    /// Not part of documents.
    #[serde(skip)]
    is_estimated: bool,
}

/// Declares that a type has the form of another type in documents.
macro_rules! schema_as {
    ($($Type:ty => $Form:ty),+) => {
        $(impl JsonSchema for $Type {
            fn inline_schema() -> bool {
                <$Form>::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                <$Form>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$Form>::json_schema(generator)
            }
        })+
    };
}

schema_as! { MicroUsd => f64, TimeSpan => f64, RunTime => f64, Sha256Digest => String }

/// In documents, a stop reason is its name.
impl JsonSchema for StopReason {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "StopReason".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut names: Vec<_> = StopReason::ALL.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        json_schema!({ "type": "string", "enum": names })
    }
}

/// Serializes the name of a stop reason, if there is one.
pub(in crate::view) fn reason<S: Serializer>(
    reason: &(impl Copy + Into<Option<StopReason>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    (*reason).into().map(StopReason::name).serialize(to)
}

/// Serializes an amount of money in dollars, if known.
pub(in crate::view) fn dollars<S: Serializer>(
    money: &(impl Copy + Into<Option<MicroUsd>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    (*money).into().map(MicroUsd::as_dollars).serialize(to)
}

/// Serializes a duration in milliseconds, if known.
#[allow(clippy::cast_precision_loss)] // exact for 285 years
pub(in crate::view) fn millis<S: Serializer>(
    span: &(impl Copy + Into<Option<TimeSpan>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    (*span).into().map(|span| span.0 as f64 / 1e3).serialize(to)
}

/// Serializes a duration in seconds, to the millisecond, if known.
#[allow(clippy::cast_precision_loss)] // exact for 285 years
pub(in crate::view) fn seconds<S: Serializer>(
    span: &(impl Copy + Into<Option<TimeSpan>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    (*span).into().map(|span| (span.0 as f64 / 1e3).round() / 1e3).serialize(to)
}
