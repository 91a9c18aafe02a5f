//! `architect cleanup`: removes old sessions.

use std::time::{Duration, SystemTime};

use architect::app::{ProcessEnv, open_store};
use architect::journal::SessionIndex;
use architect::model::pluralize;
use serde_json::json;

use crate::cli::args::CleanupArgs;
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

const SECONDS_PER_DAY: u64 = 86_400;

pub(crate) fn run(args: &CleanupArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_layers(&args.layers, world)?;
    let days = args.older_than.unwrap_or(config.settings.sessions.cleanup_after_days);
    let age = Duration::from_secs(u64::from(days) * SECONDS_PER_DAY);
    let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let removed = SessionIndex::open(&open_store(&config, world)?)?.clean_up(before)?;
    let text = if args.json {
        let removed: Vec<String> = removed.iter().map(ToString::to_string).collect();
        json!({ "removed": removed }).to_string()
    } else {
        let sessions = pluralize(removed.len(), "session", "sessions");
        let days = pluralize(days, "day", "days");
        format!("{sessions} removed, unchanged for {days}")
    };
    output::print(&text)
}
