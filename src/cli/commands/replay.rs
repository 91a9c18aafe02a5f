//! `architect replay`: replays a stored session offline and checks it.

use architect::app::ProcessEnv;
use architect::journal::{Divergence, JournalEndKind};
use architect::machine::State;
use architect::model::pluralize;
use serde_json::json;

use crate::cli::args::ReplayArgs;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session_lookup::SessionLookup;

pub(crate) fn run(args: &ReplayArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.settings.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    let (mut records, mut difference): (u64, Option<Divergence>) = (0, None);
    let (past, end) = stored.store.replay(session, |_, _, replayed| {
        records += 1;
        if difference.is_none() {
            difference.clone_from(&replayed.divergence);
        }
    })?;
    let state = past.machine.state.kind().as_str();
    let reason = match &past.machine.state {
        State::Done(done) => Some(done.outcome.reason.name()),
        _ => None,
    };
    let is_whole = end.kind == JournalEndKind::Whole;
    let text = if args.json {
        json!({
            "session_id": session.to_string(),
            "records": records,
            "state": state,
            "stop_reason": reason,
            "whole": is_whole,
            "difference": difference.as_ref().map(|found| json!({
                "seq": found.seq, "event": found.record,
            })),
        })
        .to_string()
    } else {
        let (ending, counted) = (describe_end(&end.kind), pluralize(records, "record", "records"));
        let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
        match &difference {
            None if args.verify => {
                format!("{counted}, all as stored: {state}{reason}{ending}")
            }
            Some(found) if args.verify => format!("record {} differs: {found}", found.seq),
            _ => format!("{counted}: {state}{reason}{ending}"),
        }
    };
    output::print(&text)?;
    // Half a line at the end is what a crash leaves behind, and is no damage.
    let is_damaged = end.damage().is_some() || matches!(end.kind, JournalEndKind::ReadOnly(_));
    Ok(u8::from(args.verify && (difference.is_some() || is_damaged)))
}

/// Describes the end of an incomplete journal.
fn describe_end(kind: &JournalEndKind) -> String {
    match kind {
        JournalEndKind::Whole => String::new(),
        JournalEndKind::Torn(damage) => format!("; what comes behind is torn ({damage})"),
        JournalEndKind::ReadOnly(why) => format!("; the rest is not readable: {why}"),
    }
}
