//! Time as the machine knows it: microseconds since the run began.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since the run began, on a clock that never goes back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RunTime(pub u64);

/// A length of time in microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TimeSpan(pub u64);

impl RunTime {
    /// The moment the run began.
    pub const START: Self = Self(0);

    /// Returns whether it is the moment the run began.
    #[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
    pub(crate) fn is_start(&self) -> bool {
        *self == Self::START
    }

    /// Returns the time `span` later, saturating.
    pub fn after(self, span: TimeSpan) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the time `span` earlier, but not before the run began.
    pub fn before(self, span: TimeSpan) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// Returns the time since `earlier`, or zero if it is in the future.
    pub fn since(self, earlier: Self) -> TimeSpan {
        TimeSpan(self.0.saturating_sub(earlier.0))
    }
}

impl TimeSpan {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Returns a span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Returns a span of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Returns the span in seconds, for display.
    #[allow(clippy::cast_precision_loss)] // shown with two decimals
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns `numerator / denominator` of the span.
    pub fn fraction(self, numerator: u64, denominator: u64) -> Self {
        Self(self.0 / denominator.max(1) * numerator)
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        Self::from_micros(span.0)
    }
}

impl From<Duration> for TimeSpan {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} µs", self.0),
            1_000..1_000_000 => write!(f, "{} ms", self.0 / 1_000),
            _ => write!(f, "{:.1} s", self.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_times_saturate_instead_of_wrapping() {
        assert_eq!(RunTime(u64::MAX).after(TimeSpan::from_secs(1)), RunTime(u64::MAX));
        assert_eq!(RunTime::START.before(TimeSpan::from_secs(1)), RunTime::START);
        assert_eq!(TimeSpan::from_secs(u64::MAX), TimeSpan(u64::MAX));
    }

    #[test]
    fn a_duration_survives_the_conversion_to_a_span_and_back() {
        let duration = Duration::from_millis(1_500);
        assert_eq!(Duration::from(TimeSpan::from(duration)), duration);
    }
}
