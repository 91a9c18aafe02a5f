//! The delay that a server requests before a retry.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::{HeaderMap, header};
use crate::types::TimeSpan;

/// The maximum delay; longer ones are reduced to it.
pub const MAX_RETRY_DELAY: TimeSpan = TimeSpan::from_secs(365 * 86_400);

/// Returns the delay that the headers of a response request before a retry, at most [`MAX_RETRY_DELAY`].
///
/// `retry-after-ms` takes precedence over `Retry-After` in seconds, possibly with a fraction, or as a date. A date is
/// relative to the server's own `Date`, so that a wrong clock on this machine makes no difference. Negative and invalid
/// values are ignored.
pub fn retry_after(headers: &HeaderMap) -> Option<TimeSpan> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let millis = text("retry-after-ms").and_then(|text| parse_duration(text, 1e3));
    let seconds = || parse_duration(text(header::RETRY_AFTER.as_str())?, 1e6);
    let date = || {
        let until = parse_date(text(header::RETRY_AFTER.as_str())?)?;
        let now = text(header::DATE.as_str()).and_then(parse_date);
        let now = match now {
            Some(now) => now,
            None => Timestamp::try_from(SystemTime::now()).ok()?,
        };
        let micros = until.as_microsecond() - now.as_microsecond();
        u64::try_from(micros).ok().map(TimeSpan)
    };
    millis.or_else(seconds).or_else(date).map(|delay| delay.min(MAX_RETRY_DELAY))
}

/// Parses a number of units, each of `unit` microseconds.
fn parse_duration(text: &str, unit: f64) -> Option<TimeSpan> {
    let count: f64 = text.parse().ok()?;
    let micros = count * unit;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // checked; saturates
    (micros >= 0.0 && count.is_finite()).then_some(TimeSpan(micros as u64))
}

fn parse_date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::HeaderValue;

    fn delay(headers: &[(&'static str, &'static str)]) -> Option<TimeSpan> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        retry_after(&map)
    }

    const NOW: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");

    /// Faults L18 and L20.
    #[test]
    fn milliseconds_come_before_seconds() {
        assert_eq!(delay(&[("retry-after", "7")]), Some(TimeSpan::from_secs(7)));
        assert_eq!(delay(&[("retry-after", "0.25")]), Some(TimeSpan::from_millis(250)));
        let both = [("retry-after", "7"), ("retry-after-ms", "350")];
        assert_eq!(delay(&both), Some(TimeSpan::from_millis(350)));
    }

    /// Faults L19 and C4.
    #[test]
    fn a_date_is_held_against_the_servers_own_clock() {
        let date = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(delay(&[date, NOW]), Some(TimeSpan::from_secs(30)));
        assert_eq!(delay(&[date]), None, "it has passed long ago");
        assert_eq!(delay(&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT"), NOW]), None);
    }

    /// Fault L21.
    #[test]
    fn an_invalid_delay_is_ignored() {
        for garbage in ["-1", "soon", "NaN", "inf", "", "1e999", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(delay(&[("retry-after", garbage), NOW]), None, "{garbage}");
        }
        assert_eq!(delay(&[("retry-after", "86400")]), Some(TimeSpan::from_secs(86_400)));
        for long in ["99999999999999999999", "1e300", "Thu, 31 Dec 2999 23:59:59 GMT"] {
            assert_eq!(delay(&[("retry-after", long), NOW]), Some(MAX_RETRY_DELAY), "{long}");
        }
    }
}
