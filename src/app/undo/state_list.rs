//! The recorded states of a session, and who has made the changes between them.

use std::sync::Arc;

use super::{UndoError, UndoTarget};
use crate::app::error::AppError;
use crate::journal::{AuthorizedEdit, SessionHistory, StoredCheckpoint};
use crate::types::{CheckpointKind, CheckpointOutcome, CheckpointRecord, RunActivity};
use crate::workspace::checkpoint::{
    AuthoredChange, ChangeAuthor, ChangeInterval, ContentHash, ContentStore, ToolEdit,
};

/// The recorded states of a session.
pub(super) struct StateList<'a> {
    history: &'a SessionHistory,
    /// Those that were recorded, with their trees.
    pub(super) states: Vec<(&'a StoredCheckpoint, ContentHash)>,
}

impl<'a> StateList<'a> {
    pub(super) fn new(history: &'a SessionHistory) -> Result<Self, AppError> {
        // The contents of an imported session stayed where it came from.
        let imported = history.header.imported_up_to;
        let states = history.checkpoints.iter().filter_map(|found| {
            let tree = ContentHash::parse(&found.record.state()?.tree)?;
            imported.is_none_or(|last| found.seq > last).then_some((found, tree))
        });
        let mut states: Vec<_> = states.collect();
        // An undo that was not made.
        while states.pop_if(|(found, _)| found.record.kind == CheckpointKind::BeforeUndo).is_some()
        {
        }
        if states.is_empty() {
            let failed = history.checkpoints.iter().find_map(|found| match &found.record.outcome {
                CheckpointOutcome::Failed(reason) => Some(format!(": {reason}")),
                CheckpointOutcome::Recorded(_) => None,
            });
            let reason = match (&history.header.dispatched_by, failed) {
                (Some(parent), _) => format!("; those of {} have them", parent.session),
                (None, _) if history.is_imported_setup() => "; an import contains none".to_owned(),
                (None, Some(failed)) => failed,
                (None, None) => ": it changed nothing, or checkpoints.enabled was false".into(),
            };
            return Err(UndoError::NothingRecorded(history.header.session, reason).into());
        }
        Ok(Self { history, states })
    }

    /// Returns what happened after each state, until the next one or `now`.
    fn intervals(
        &self,
        now: Option<ContentHash>,
    ) -> impl Iterator<Item = (ChangeInterval, &'a StoredCheckpoint)> {
        let next = self.states.iter().skip(1).map(|(next, tree)| (Some(*next), *tree));
        let pairs = self.states.iter().zip(next.chain(now.map(|now| (None, now))));
        pairs.map(|((found, from), (next, to))| {
            let author = self.author(found, next);
            (ChangeInterval { from: *from, to, author }, *found)
        })
    }

    /// Returns the author of what has changed after a state.
    fn author(&self, found: &StoredCheckpoint, next: Option<&StoredCheckpoint>) -> ChangeAuthor {
        let of_kind = |is_own| if is_own { ChangeAuthor::Session } else { ChangeAuthor::Others };
        if self.is_inherited(found) {
            return ChangeAuthor::Others;
        }
        match next.map_or(RunActivity::Unknown, |next| next.record.since) {
            RunActivity::Idle | RunActivity::Checks => ChangeAuthor::Others,
            RunActivity::Commands => ChangeAuthor::Session,
            RunActivity::Edits => {
                let to = next.map_or(u64::MAX, |next| next.seq);
                ChangeAuthor::Tools(self.tool_edits(found.seq, to))
            }
            RunActivity::Unknown => {
                // An undo that failed has no restored state.
                let is_made = found.record.kind != CheckpointKind::BeforeUndo
                    || next.is_some_and(|next| next.record.kind == CheckpointKind::Restored);
                let to = next.map_or(u64::MAX, |next| next.seq);
                let is_failed = self.failed_steps(found.seq, to).next().is_some();
                of_kind(found.record.kind.is_before_change() && is_made || is_failed)
            }
        }
    }

    /// Returns the changes of files that tools may have made between two records.
    fn tool_edits(&self, from: u64, to: u64) -> Vec<ToolEdit> {
        let mut edits: Vec<&AuthorizedEdit> = self.history.edits.iter().collect();
        edits.retain(|edit| {
            edit.authorized < to && edit.completed.is_none_or(|(seq, _)| seq > from)
        });
        edits.sort_by_key(|edit| edit.completed.map_or(u64::MAX, |(seq, _)| seq));
        let hash = |digest: &Option<Arc<str>>| digest.as_deref().and_then(ContentHash::parse);
        let files = edits.into_iter().flat_map(|edit| {
            let is_made = edit.completed.is_some_and(|(_, is_made)| is_made);
            edit.files.iter().map(move |file| ToolEdit {
                path: file.path.as_path().to_owned(),
                before: hash(&file.before),
                after: hash(&file.after),
                is_made,
            })
        });
        files.collect()
    }

    /// Returns the intervals in which the session may have changed files.
    pub(super) fn own_intervals(
        &self,
    ) -> impl Iterator<Item = (ChangeInterval, &'a StoredCheckpoint)> {
        let intervals = self.intervals(None);
        intervals.filter(|(interval, _)| interval.author != ChangeAuthor::Others)
    }

    /// Returns whether the session's last change has no recorded end: its process was killed, or records failed.
    pub(super) fn is_open(&self) -> bool {
        let is_open = |(found, _): &(&StoredCheckpoint, _)| {
            let is_failed = self.failed_steps(found.seq, u64::MAX).next().is_some();
            (found.record.kind == CheckpointKind::Step || is_failed) && !self.is_inherited(found)
        };
        self.states.last().is_some_and(is_open)
    }

    /// Returns the session's own records between two others that were to have the state before a step, and failed.
    fn failed_steps(&self, from: u64, to: u64) -> impl Iterator<Item = &'a CheckpointRecord> {
        let header = &self.history.header;
        let inherited = header.ancestry.map_or(0, |parent| parent.seq);
        let first = from.max(inherited).max(header.imported_up_to.unwrap_or(0));
        let between =
            self.history.checkpoints.iter().filter(move |it| it.seq > first && it.seq < to);
        let failed = between.filter(|it| it.is_failed() && it.record.kind == CheckpointKind::Step);
        failed.map(|it| &it.record)
    }

    /// Returns the error of the first step, from this one on, whose earlier state was to be recorded before a state, and is not.
    fn missing_before(&self, index: usize, step: u32) -> Option<UndoError> {
        let next = self.states[index].0.seq;
        let failed = self.failed_steps(0, next).find(|it| it.step >= step)?;
        let CheckpointOutcome::Failed(reason) = &failed.outcome else { return None };
        Some(UndoError::StepNotRecorded { step: failed.step, reason: Arc::clone(reason), next })
    }

    /// Fails if the state before the session's first change is not recorded.
    pub(super) fn check_start(&self) -> Result<(), UndoError> {
        self.missing_before(0, 0).map_or(Ok(()), Err)
    }

    /// Returns whether the next change after a state is not that of a fork, but of its original.
    fn is_inherited(&self, found: &StoredCheckpoint) -> bool {
        let Some(parent) = self.history.header.ancestry else { return false };
        let next = self.states.iter().find(|(next, _)| next.seq > found.seq);
        found.seq <= parent.seq && next.is_none_or(|(next, _)| next.seq > parent.seq)
    }

    /// Returns the number of the state just after a record.
    pub(super) fn after_record(&self, seq: u64) -> Result<usize, AppError> {
        let (session, last) = (self.history.header.session, self.history.last_seq);
        if seq > last {
            return Err(UndoError::NoRecord { session, seq, last }.into());
        }
        let changes = &self.history.change_records;
        let is_changed = |from: u64, to: u64| changes.iter().any(|at| (from..to).contains(at));
        let next = self.states.partition_point(|(found, _)| found.seq <= seq);
        let before = next.checked_sub(1).and_then(|last| self.states.get(last));
        let after = self.states.get(next);
        if let Some((found, _)) = before
            && !is_changed(found.seq + 1, seq + 1)
        {
            return Ok(next - 1);
        }
        if let Some((found, _)) = after
            && !is_changed(seq + 1, found.seq)
        {
            return Ok(next);
        }
        let near: Vec<String> = [before, after]
            .into_iter()
            .flatten()
            .map(|(found, _)| format!("record {}", found.seq))
            .collect();
        let reason = match after {
            None => "the session ended without recording them".to_owned(),
            Some(_) => {
                format!("other calls of the step were running; {} have a state", near.join(" and "))
            }
        };
        Err(UndoError::NotRecorded { seq, reason }.into())
    }

    fn before_step(&self, step: u32) -> Result<usize, AppError> {
        let last = self.history.machine.state.run().steps;
        if step == 0 || step > last {
            let session = self.history.header.session;
            return Err(UndoError::NoStep { session, step, last }.into());
        }
        let records = || self.states.iter().map(|(found, _)| &found.record);
        let is_own = |it: &CheckpointRecord| it.step == step && it.kind == CheckpointKind::Step;
        if let Some(own) = records().position(is_own) {
            return Ok(own);
        }
        // The step changed nothing. What comes after it, an undo for example, is not before it.
        let earlier = records().take_while(|it| it.step < step).enumerate().last();
        let found = match earlier {
            None => 0,
            Some((at, it)) if it.kind.is_before_change() => (at + 1).min(self.states.len() - 1),
            Some((at, _)) => at,
        };
        // Or its record failed.
        self.missing_before(found, step).map_or(Ok(found), |error| Err(error.into()))
    }

    /// Returns what happened since the state to go back to; `None` if there is no change to take back.
    pub(super) fn resolve(
        &self,
        target: UndoTarget,
        now: ContentHash,
        contents: &ContentStore,
    ) -> Result<Option<Vec<ChangeInterval>>, AppError> {
        let mut intervals: Vec<_> = self.intervals(Some(now)).map(|(found, _)| found).collect();
        let first = match target {
            UndoTarget::LastChange => {
                let mut last = None;
                for (index, interval) in intervals.iter().enumerate().rev() {
                    if contents.authored_changes(interval)?.iter().any(AuthoredChange::is_own) {
                        last = Some(index);
                        break;
                    }
                }
                let Some(first) = last else {
                    self.check_start()?;
                    return Ok(None);
                };
                first
            }
            UndoTarget::Start => {
                self.check_start()?;
                0
            }
            UndoTarget::Step(step) => self.before_step(step)?,
            UndoTarget::Record(seq) => self.after_record(seq)?,
        };
        Ok(Some(intervals.split_off(first)))
    }
}
