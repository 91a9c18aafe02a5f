//! `architect cleanup`: old sessions are removed.

use std::time::{Duration, SystemTime};

use architect::app::{World, store};
use architect::journal::Index;
use architect::model::count;
use serde_json::json;

use crate::cli::args::CleanupArgs;
use crate::cli::error::Failure;
use crate::cli::{output, settings};

const DAY: u64 = 86_400;

pub(crate) fn run(args: &CleanupArgs, world: &World) -> Result<u8, Failure> {
    let config = settings::of_layers(&args.layers, world)?;
    let days = args.older_than.unwrap_or(config.settings.sessions.cleanup_after_days);
    let age = Duration::from_secs(u64::from(days) * DAY);
    let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let removed = Index::open(&store(&config, world)?)?.clean_up(before)?;
    let text = if args.json {
        let removed: Vec<String> = removed.iter().map(ToString::to_string).collect();
        json!({ "removed": removed }).to_string()
    } else {
        let sessions = count(removed.len(), "session", "sessions");
        let days = count(days, "day", "days");
        format!("{sessions} removed that nobody has written to for {days}")
    };
    output::print(&text)?;
    Ok(0)
}
