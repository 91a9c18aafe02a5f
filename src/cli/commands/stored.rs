//! The commands about one stored session, and the one that removes old ones.

use std::path::Path;
use std::time::{Duration, SystemTime};

use architect::app::{ProcessEnv, mask_message, open_store, trace_session, verify_checkpoints};
use architect::journal::{Divergence, JournalEndKind, MessageKind, QueuedMessage, SessionIndex};
use architect::model::pluralize;
use architect::view::atif::Trajectory;
use architect::view::save;
use architect::workspace::read_input;
use serde_json::json;

use crate::cli::args::{CleanupArgs, MessageArgs, ReplayArgs, TraceArgs};
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::{config_options, output, task_text};

const SECONDS_PER_DAY: u64 = 86_400;

/// `architect steer` and `architect followup`: sends a message to a running session.
pub(crate) fn send(
    args: &MessageArgs,
    kind: MessageKind,
    world: &ProcessEnv,
) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    let text = mask_message(&task_text::read_message(&args.message)?, &stored.secrets);
    stored.store.send(session, &QueuedMessage::new(kind, text))?;
    let when = match kind {
        MessageKind::Steering => "before its next model call",
        _ => "when it would have ended",
    };
    output::print_stderr(&format!("Session {session} reads it {when}."));
    Ok(0)
}

/// `architect replay`: replays a stored session offline and checks it.
pub(crate) fn replay(args: &ReplayArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.settings.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    let (mut records, mut difference): (u64, Option<Divergence>) = (0, None);
    let (past, end) = stored.store.replay(session, |_, _, replayed| {
        records += 1;
        difference = difference.take().or_else(|| replayed.divergence.clone());
    })?;
    let contents = match args.verify {
        true => verify_checkpoints(&stored.store, &past).map_err(|error| error.to_string()),
        false => Ok(0),
    };
    let state = past.machine.state.kind().as_str();
    let reason = past.machine.state.outcome().map(|outcome| outcome.reason.name());
    let text = if args.json {
        json!({
            "session_id": session.to_string(),
            "records": records,
            "state": state,
            "stop_reason": reason,
            "whole": end.kind == JournalEndKind::Whole,
            "files_error": contents.as_ref().err(),
            "difference": difference.as_ref().map(|found| json!({ "seq": found.seq, "event": found.record })),
        })
        .to_string()
    } else {
        let counted = pluralize(records, "record", "records");
        let ending = match &end.kind {
            JournalEndKind::Whole => String::new(),
            JournalEndKind::Torn(damage) => format!("; what comes behind is torn ({damage})"),
            JournalEndKind::ReadOnly(why) => format!("; the rest is not readable: {why}"),
        };
        let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
        match &difference {
            None if args.verify => match &contents {
                Ok(_) => format!("{counted}, all as stored: {state}{reason}{ending}"),
                Err(error) => format!("the recorded files are damaged: {error}"),
            },
            Some(found) if args.verify => format!("record {} differs: {found}", found.seq),
            _ => format!("{counted}: {state}{reason}{ending}"),
        }
    };
    output::print(&text)?;
    // Half a line at the end is what a crash leaves behind, and is no damage.
    let is_damaged = end.damage().is_some() || matches!(end.kind, JournalEndKind::ReadOnly(_));
    Ok(u8::from(args.verify && (difference.is_some() || is_damaged || contents.is_err())))
}

/// `architect trace`: shows where a session spent its time.
pub(crate) fn trace(args: &TraceArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let file = Path::new(&args.session);
    let mut trace = if file.extension().is_some_and(|extension| extension == "json") {
        read_trajectory(file)?.trace()
    } else {
        let session = stored.find_and_report_folder(&args.session)?;
        stored.check_damage(session, args.partial)?;
        trace_session(&stored.store, session)?
    };
    // Before anything is escaped: a secret with a quotation mark would no longer be found.
    trace.map_texts(&|text| stored.secrets.mask_all(text));
    if let Some(path) = &args.html {
        let html = stored.secrets.mask_all(&trace.html());
        save(Path::new("."), path, html.as_bytes()).map_err(|error| CliError::from_save(&error))?;
        output::print_stderr(&format!("The page is {}.", path.display()));
    }
    match (args.json, &args.html) {
        (true, _) => output::print(&stored.secrets.mask_all(&json!(trace).to_string())),
        (false, None) => output::print(&stored.secrets.mask_all(&trace.table())),
        (false, Some(_)) => Ok(0),
    }
}

fn read_trajectory(file: &Path) -> Result<Trajectory, CliError> {
    let text = read_input(file)
        .map_err(|error| CliError::usage(format!("could not read {}: {error}", file.display())))?;
    serde_json::from_str(&text).map_err(|error| {
        let name = file.display();
        CliError::usage(format!("{name} is no trajectory in the ATIF format: {error}"))
    })
}

/// `architect cleanup`: removes old sessions.
pub(crate) fn clean_up(args: &CleanupArgs, world: &ProcessEnv) -> Result<u8, CliError> {
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
