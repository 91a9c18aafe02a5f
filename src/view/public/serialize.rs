//! Serializers for amounts.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::machine::StopReason;
use crate::model::{MicroUsd, TimeSpan, Tokens, Usage};

/// The usage of one or several model calls. Input includes cached input; output includes reasoning.
#[derive(Serialize)]
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
}

/// Serializes a value as its text.
pub(in crate::view) fn text<T: Display, S: Serializer>(
    value: &T,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Serializes the name of a stop reason, if there is one.
#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)] // asked for by serde
pub(in crate::view) fn maybe_reason<S: Serializer>(
    reason: &Option<StopReason>,
    to: S,
) -> Result<S::Ok, S::Error> {
    reason.map(StopReason::name).serialize(to)
}

/// Serializes an amount of money in dollars.
#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
pub(super) fn dollars<S: Serializer>(money: &MicroUsd, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(money.as_dollars())
}

/// Serializes an amount of money in dollars, if known.
#[allow(clippy::ref_option)] // asked for by serde
pub(in crate::view) fn maybe_dollars<S: Serializer>(
    money: &Option<MicroUsd>,
    to: S,
) -> Result<S::Ok, S::Error> {
    money.map(MicroUsd::as_dollars).serialize(to)
}

/// Serializes a duration in milliseconds.
#[allow(clippy::trivially_copy_pass_by_ref, clippy::cast_precision_loss)] // exact for 285 years
pub(in crate::view) fn millis<S: Serializer>(span: &TimeSpan, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(span.0 as f64 / 1e3)
}

/// Serializes a duration in milliseconds, if known.
#[allow(clippy::ref_option)] // asked for by serde
pub(in crate::view) fn maybe_millis<S: Serializer>(
    span: &Option<TimeSpan>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match span {
        Some(span) => millis(span, to),
        None => to.serialize_none(),
    }
}

/// Serializes a duration in seconds, to the millisecond.
#[allow(clippy::trivially_copy_pass_by_ref, clippy::cast_precision_loss)] // asked for by serde
pub(in crate::view) fn seconds<S: Serializer>(span: &TimeSpan, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((span.0 as f64 / 1e3).round() / 1e3)
}

/// Serializes a duration in seconds, if known.
#[allow(clippy::ref_option)] // asked for by serde
pub(super) fn maybe_seconds<S: Serializer>(
    span: &Option<TimeSpan>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match span {
        Some(span) => seconds(span, to),
        None => to.serialize_none(),
    }
}

/// Returns the word that stands for a value in events.
pub(in crate::view) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}
