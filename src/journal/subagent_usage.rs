//! The usage of sub-agents that is missing in their dispatcher's journal.
//!
//! A sub-agent reports its usage when its own journal has it. If its process is killed, reports that are on their way
//! are lost, and so is the charge for its current model call. The session is charged for both when it is opened again,
//! before it is resumed, because they share one budget.

use super::error::Result;
use super::file_journal::FileJournal;
use super::record_line::{RecordBody, StoredContent, StoredRecord};
use super::replay::SessionHistory;
use crate::machine::{CallIntent, CallState, Event, Fingerprint, PricedUsage, State};
use crate::types::{EffectId, MicroUsd, Tokens};

/// Writes the usage of the running calls' sub-agents that the journal does not contain.
///
/// # Errors
///
/// Fails if the journal cannot be written.
pub(super) fn record_unreported(
    journal: &mut FileJournal,
    mut history: SessionHistory,
    delegated: &[SessionHistory],
) -> Result<SessionHistory> {
    for (id, PricedUsage { usage, cost }) in unreported(&history, delegated) {
        let event = Event::UsageReported { id, usage, cost };
        let (seq, at) = (journal.position.seq, history.at);
        let fingerprint = Fingerprint::of(&history.machine, &history.output.effects);
        let line = journal.record_line(at, RecordBody::Event(&event));
        journal.write_line(&line.with_fingerprint(fingerprint))?;
        journal.sync_file()?;
        let content = StoredContent::Event(event);
        (history, _) = history.apply(&StoredRecord { seq, at, content, ..StoredRecord::default() });
    }
    Ok(history)
}

fn unreported(
    history: &SessionHistory,
    delegated: &[SessionHistory],
) -> Vec<(EffectId, PricedUsage)> {
    let State::Executing(state) = &history.machine.state else { return Vec::new() };
    let running = state.calls.iter().filter_map(|tracked| {
        let CallState::Running { id, budget: Some(_), .. } = tracked.state else { return None };
        let Some(CallIntent::Delegated { session: Some(session), worktree }) =
            history.intents.get(&tracked.call.id)
        else {
            return None;
        };
        if history.is_foreign(session, delegated) {
            return None;
        }
        let is_its = |child: &&SessionHistory| child.header.session.to_string() == **session;
        let child = delegated.iter().find(is_its)?;
        // A sub-agent in a worktree is resumed itself, and then reports its lost call.
        let used = total_usage(child, worktree.is_none());
        let reported = history.subagent_usage.get(&tracked.call.id).copied().unwrap_or_default();
        let missing = used.without(reported);
        let is_any = missing.usage.total() > Tokens::ZERO || missing.cost > MicroUsd::ZERO;
        is_any.then_some((id, missing))
    });
    running.collect()
}

/// Returns the usage of a session, with or without a call that its process has lost.
fn total_usage(history: &SessionHistory, with_lost: bool) -> PricedUsage {
    let costs = if with_lost { history.costs_with_lost_call() } else { history.costs };
    costs.agent + costs.closing + costs.compaction + costs.subagents
}
