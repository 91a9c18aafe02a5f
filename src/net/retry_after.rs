//! How long a server asks to wait.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::{HeaderMap, header};
use crate::model::Span;

/// Returns how long the headers of a response ask to wait before the request is made again.
///
/// `retry-after-ms` comes first, then `Retry-After` in seconds, also with a fraction, or as a date. A date is held
/// against the server's own `Date`, so that a wrong clock here makes no difference. What is negative or makes no sense
/// asks for nothing.
pub fn retry_after(headers: &HeaderMap) -> Option<Span> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let millis = text("retry-after-ms").and_then(|text| span(text, 1e3));
    let seconds = || span(text(header::RETRY_AFTER.as_str())?, 1e6);
    let date = || {
        let until = date(text(header::RETRY_AFTER.as_str())?)?;
        let now = text(header::DATE.as_str()).and_then(date);
        let now = match now {
            Some(now) => now,
            None => Timestamp::try_from(SystemTime::now()).ok()?,
        };
        let micros = until.as_microsecond() - now.as_microsecond();
        u64::try_from(micros).ok().map(Span)
    };
    millis.or_else(seconds).or_else(date)
}

/// Returns the span of a number of units, each of so many microseconds.
pub(super) fn span(text: &str, unit: f64) -> Option<Span> {
    let count: f64 = text.parse().ok()?;
    let micros = count * unit;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // checked; too much saturates
    (micros >= 0.0 && count.is_finite()).then_some(Span(micros as u64))
}

fn date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::HeaderValue;

    fn asked(headers: &[(&'static str, &'static str)]) -> Option<Span> {
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
        assert_eq!(asked(&[("retry-after", "7")]), Some(Span::secs(7)));
        assert_eq!(asked(&[("retry-after", "0.25")]), Some(Span::millis(250)));
        let both = [("retry-after", "7"), ("retry-after-ms", "350")];
        assert_eq!(asked(&both), Some(Span::millis(350)));
    }

    /// Faults L19 and C4.
    #[test]
    fn a_date_is_held_against_the_servers_own_clock() {
        let date = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(asked(&[date, NOW]), Some(Span::secs(30)));
        assert_eq!(asked(&[date]), None, "it has passed long ago");
        assert_eq!(asked(&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT"), NOW]), None);
    }

    /// Fault L21.
    #[test]
    fn what_makes_no_sense_asks_for_nothing() {
        for garbage in ["-1", "soon", "NaN", "inf", "", "1e999", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(asked(&[("retry-after", garbage), NOW]), None, "{garbage}");
        }
        assert_eq!(asked(&[("retry-after", "86400")]), Some(Span::secs(86_400)));
        assert_eq!(asked(&[("retry-after", "1e300")]), Some(Span(u64::MAX)));
    }
}
