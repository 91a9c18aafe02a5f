//! Serializers for amounts.

use serde::Serializer;

use crate::model::{MicroUsd, TimeSpan};

/// Serializes an amount of money in dollars.
#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
pub(in crate::view) fn dollars<S: Serializer>(money: &MicroUsd, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(money.as_dollars())
}

/// Serializes an amount of money in dollars, if known.
#[allow(clippy::ref_option)] // asked for by serde
pub(in crate::view) fn maybe_dollars<S: Serializer>(
    money: &Option<MicroUsd>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match money {
        Some(money) => to.serialize_f64(money.as_dollars()),
        None => to.serialize_none(),
    }
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
