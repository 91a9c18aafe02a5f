//! `architect stats`: statistics over the stored sessions.

use std::time::{Duration, SystemTime};

use architect::app::{ProcessEnv, session_statistics};
use architect::journal::{SessionIndex, WallTime};
use jiff::civil::Date;

use super::sessions::report_damage;
use crate::cli::args::{LastArgs, StatsArgs, StatsFormat};
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session_lookup::SessionLookup;

pub(crate) fn run(args: &StatsArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let since = args.since.as_deref().map(|text| parse_since(text, SystemTime::now()));
    let since = since.transpose()?;
    let stored = SessionLookup::open(&args.layers, LastArgs { any_folder: true }, world)?;
    let statistics = session_statistics(&stored.store, since)?;
    let text = match if args.json { StatsFormat::Json } else { args.format } {
        StatsFormat::Text => statistics.text(),
        StatsFormat::Json => output::to_json(&statistics),
        StatsFormat::Html => statistics.html(),
    };
    output::print(&stored.secrets.mask_all(&text))?;
    Ok(report_damage(&SessionIndex::open(&stored.store)?.list()?, args.partial))
}

/// Returns a time in RFC 3339, or a prefix of one: a given date, or the time at a given duration before now.
fn parse_since(text: &str, now: SystemTime) -> Result<String, CliError> {
    let is_date = text.len() >= 10
        && text.bytes().take(10).enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if is_date
        && text[..10].parse::<Date>().is_ok()
        && (text.len() == 10 || text.as_bytes()[10] == b'T')
    {
        return Ok(text.to_owned());
    }
    let wrong = || {
        CliError::usage(format!("invalid --since '{text}'"))
            .hint("a date such as 2026-11-01, or a time before now: 30d, 12h, 90m")
    };
    let unit = match text.chars().last() {
        Some('d') => 86_400,
        Some('h') => 3_600,
        Some('m') => 60,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let before = now.checked_sub(Duration::from_secs(number.saturating_mul(unit)));
    Ok(WallTime::from(before.unwrap_or(SystemTime::UNIX_EPOCH)).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_date_stays_and_a_duration_is_subtracted() {
        let now = UNIX_EPOCH + Duration::from_secs(2 * 86_400);
        let since = |text: &str| parse_since(text, now).ok();
        assert_eq!(since("2026-11-01").as_deref(), Some("2026-11-01"));
        assert_eq!(since("36h").as_deref(), Some("1970-01-01T12:00:00Z"));
        assert_eq!(since("9999999d").as_deref(), Some("1970-01-01T00:00:00Z"));
        for wrong in
            ["", "d", "-1d", "1.5h", "yesterday", "2026-11", "2026-11-01x", "2026-02-31", "7é"]
        {
            assert_eq!(since(wrong), None, "{wrong}");
        }
    }
}
