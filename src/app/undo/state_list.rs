//! The recorded states of a session, and the authors of the changes between them.

use std::sync::Arc;

use super::{UndoError, UndoTarget};
use crate::app::error::AppError;
use crate::journal::{AuthorizedEdit, SessionHistory, StoredCheckpoint};
use crate::types::{
    CheckpointKind, CheckpointOutcome, CheckpointRecord, RunActivity, Sha256Digest,
};
use crate::workspace::checkpoint::{
    AuthoredChange, ChangeAuthor, ChangeInterval, ContentStore, ToolEdit,
};

/// The recorded states of a session.
pub(super) struct StateList<'a> {
    history: &'a SessionHistory,
    /// The recorded states, with their trees.
    pub(super) states: Vec<(&'a StoredCheckpoint, Sha256Digest)>,
}

impl<'a> StateList<'a> {
    pub(super) fn new(history: &'a SessionHistory) -> Result<Self, AppError> {
        // The contents of an imported session are not part of the import.
        let imported = history.header.imported_up_to;
        let states = history.checkpoints.iter().filter_map(|found| {
            let tree = found.record.state()?.tree.parse().ok()?;
            imported.is_none_or(|last| found.seq > last).then_some((found, tree))
        });
        let mut states: Vec<_> = states.collect();
        // These records belong to an undo that did not happen.
        while states.pop_if(|(found, _)| found.record.kind == CheckpointKind::BeforeUndo).is_some()
        {
        }
        if states.is_empty() {
            let failed = history.checkpoints.iter().find_map(|found| match &found.record.outcome {
                CheckpointOutcome::Failed(reason) => Some(format!(": {reason}")),
                CheckpointOutcome::Recorded(_) => None,
            });
            let session = history.header.session;
            let reason = match (&history.header.dispatched_by, failed) {
                (Some(parent), _) => format!("; those of {} have them", parent.session),
                (None, _) if history.is_imported_setup() => "; an import contains none".to_owned(),
                (None, Some(failed)) => failed,
                (None, None) if history.change_records.is_empty() => {
                    return Err(UndoError::NothingChanged(session).into());
                }
                (None, None) => ": it changed nothing, or checkpoints.enabled was false".into(),
            };
            return Err(UndoError::NothingRecorded(session, reason).into());
        }
        Ok(Self { history, states })
    }

    /// Returns the intervals from each state to the next one or to `now`.
    fn intervals(
        &self,
        now: Option<Sha256Digest>,
    ) -> impl Iterator<Item = (ChangeInterval, &'a StoredCheckpoint)> {
        let next = self.states.iter().skip(1).map(|(next, tree)| (Some(*next), *tree));
        let pairs = self.states.iter().zip(next.chain(now.map(|now| (None, now))));
        pairs.map(|((found, from), (next, to))| {
            let author = self.author(found, next);
            (ChangeInterval { from: *from, to, author }, *found)
        })
    }

    /// Returns the author of the changes after a state.
    fn author(&self, found: &StoredCheckpoint, next: Option<&StoredCheckpoint>) -> ChangeAuthor {
        let of_kind = |is_own| if is_own { ChangeAuthor::Session } else { ChangeAuthor::Others };
        if self.is_inherited(found) {
            return ChangeAuthor::Others;
        }
        match next.map_or(RunActivity::Unknown, |next| next.record.since) {
            RunActivity::Idle | RunActivity::Checks => ChangeAuthor::Others,
            RunActivity::Commands => ChangeAuthor::Session,
            RunActivity::Edits => {
                let SessionHistory { edits, .. } = self.history;
                ChangeAuthor::Tools(edits_between(edits, found.seq, next))
            }
            RunActivity::Unknown => {
                // A failed undo has no restored state.
                let is_made = found.record.kind != CheckpointKind::BeforeUndo
                    || next.is_some_and(|next| next.record.kind == CheckpointKind::Restored);
                let to = next.map_or(u64::MAX, |next| next.seq);
                let is_failed = self.failed_steps(found.seq, to).next().is_some();
                of_kind(found.record.kind.is_before_change() && is_made || is_failed)
            }
        }
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

    /// Returns the session's own failed records of the state before a step, between two other records.
    fn failed_steps(&self, from: u64, to: u64) -> impl Iterator<Item = &'a CheckpointRecord> {
        let header = &self.history.header;
        let inherited = header.ancestry.map_or(0, |parent| parent.seq);
        let first = from.max(inherited).max(header.imported_up_to.unwrap_or(0));
        let between =
            self.history.checkpoints.iter().filter(move |it| it.seq > first && it.seq < to);
        let failed = between.filter(|it| it.is_failed() && it.record.kind == CheckpointKind::Step);
        failed.map(|it| &it.record)
    }

    /// Returns the error of the first step, from `step` on, whose earlier state could not be recorded before the state
    /// at `index`.
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

    /// Returns whether the next change after a state belongs to the original of a fork.
    fn is_inherited(&self, found: &StoredCheckpoint) -> bool {
        let Some(parent) = self.history.header.ancestry else { return false };
        let next = self.states.iter().find(|(next, _)| next.seq > found.seq);
        found.seq <= parent.seq && next.is_none_or(|(next, _)| next.seq > parent.seq)
    }

    /// Returns the index of the state just after a record.
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
        let near: Vec<u64> =
            [before, after].into_iter().flatten().map(|(found, _)| found.seq).collect();
        let reason = match after {
            None => "the session ended without recording them".to_owned(),
            Some(_) => format!("other calls of the step were running; {}", describe_states(&near)),
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
        // The step changed nothing. A later change, such as an undo, must not count as being before it.
        let earlier = records().take_while(|it| it.step < step).enumerate().last();
        let found = match earlier {
            None => 0,
            Some((at, it)) if it.kind.is_before_change() => (at + 1).min(self.states.len() - 1),
            Some((at, _)) => at,
        };
        // Or the record of the step failed.
        self.missing_before(found, step).map_or(Ok(found), |error| Err(error.into()))
    }

    /// Returns the intervals since the target state; `None` if there is no change to undo.
    pub(super) fn resolve(
        &self,
        target: UndoTarget,
        now: Sha256Digest,
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

/// Returns the file edits that tools may have made between a recorded state and the next one, in order.
///
/// No state is recorded while a call that changes files is running: a call that is authorized before the state of its
/// step is recorded waits for that record. So a change belongs to the interval in which its call completed.
fn edits_between(
    edits: &[AuthorizedEdit],
    from: u64,
    next: Option<&StoredCheckpoint>,
) -> Vec<ToolEdit> {
    let to = next.map_or(u64::MAX, |next| next.seq);
    let is_between = |edit: &&AuthorizedEdit| match edit.completed {
        Some((seq, _)) => seq > from && seq < to,
        // The edit may have been made at any time.
        None => edit.authorized < to,
    };
    let mut between: Vec<&AuthorizedEdit> = edits.iter().filter(is_between).collect();
    between.sort_by_key(|edit| edit.completed.map_or(edit.authorized, |(seq, _)| seq));
    let hash = |digest: &Option<Arc<str>>| digest.as_deref()?.parse().ok();
    let files = between.into_iter().flat_map(|edit| {
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

/// Names the records that have a state.
fn describe_states(records: &[u64]) -> String {
    let names: Vec<String> = records.iter().map(|seq| format!("record {seq}")).collect();
    let verb = if names.len() == 1 { "has a state" } else { "have states" };
    format!("{} {verb}", names.join(" and "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::machine::FileDigests;
    use crate::types::RecordedState;

    #[test]
    fn one_record_has_a_state_and_two_have_states() {
        assert_eq!(describe_states(&[10]), "record 10 has a state");
        assert_eq!(describe_states(&[5, 11]), "record 5 and record 11 have states");
    }

    /// An action of a session and its processes.
    #[derive(Clone, Debug)]
    enum Action {
        /// A call that edits one of two files is authorized.
        Authorize(bool),
        /// The state before the step is recorded, or can't be.
        Record(bool),
        /// One of the running calls ends, with its file changed or not.
        Complete(prop::sample::Index, bool),
        /// The next step begins; the state after the one before may be recorded.
        NextStep(bool),
        /// The results of running calls are lost. The state is recorded if the process runs that far. A later process
        /// resumes the session, and finds the files of the calls changed or not.
        Stop { is_recorded: bool, is_made: bool },
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            4 => any::<bool>().prop_map(Action::Authorize),
            2 => prop::bool::weighted(0.9).prop_map(Action::Record),
            4 => (any::<prop::sample::Index>(), prop::bool::weighted(0.9))
                .prop_map(|(call, is_made)| Action::Complete(call, is_made)),
            2 => any::<bool>().prop_map(Action::NextStep),
            1 => any::<(bool, bool)>()
                .prop_map(|(is_recorded, is_made)| Action::Stop { is_recorded, is_made }),
        ]
    }

    /// A session as recorded in its journal, and its actual history.
    #[derive(Default)]
    struct PlayedSession {
        seq: u64,
        step: u32,
        is_step_recorded: bool,
        edits: Vec<AuthorizedEdit>,
        /// The running calls.
        open: Vec<usize>,
        states: Vec<StoredCheckpoint>,
        /// The changes made in the interval before each state, and the running calls whose results were lost.
        made: Vec<Vec<usize>>,
        lost: Vec<Vec<usize>>,
    }

    impl PlayedSession {
        fn begin() -> Self {
            let mut session =
                Self { made: vec![Vec::new()], lost: vec![Vec::new()], ..Self::default() };
            session.record(CheckpointKind::Step);
            session
        }

        fn record(&mut self, kind: CheckpointKind) {
            self.seq += 1;
            let (files, bytes, left_out) = (0, 0, 0);
            let contents = std::collections::BTreeMap::new();
            let tree = Sha256Digest::of(b"").to_string().into();
            let state = RecordedState { tree, files, bytes, left_out, contents };
            let outcome = CheckpointOutcome::Recorded(state);
            let (step, since, target) = (self.step, RunActivity::Edits, None);
            let record = CheckpointRecord { kind, step, since, target, outcome };
            self.states.push(StoredCheckpoint { seq: self.seq, record });
            self.made.push(Vec::new());
            self.lost.push(Vec::new());
        }

        fn end(&mut self, call: usize, is_made: bool) {
            self.edits[call].completed = Some((self.seq, is_made));
            if is_made {
                self.made.last_mut().unwrap().push(call);
            }
        }

        fn play(&mut self, action: &Action) {
            self.seq += 1;
            match action {
                Action::Authorize(file) => {
                    self.open.push(self.edits.len());
                    let number = self.edits.len().to_string();
                    let digest = Sha256Digest::of(number.as_bytes()).to_string();
                    let path = file.to_string().into();
                    let (before, after) = (None, Some(digest.into()));
                    let files = [FileDigests { path, before, after }].into();
                    let (call, authorized) = ((*number).into(), self.seq);
                    let completed = None;
                    self.edits.push(AuthorizedEdit { call, files, authorized, completed });
                }
                Action::Record(is_recorded) if !self.is_step_recorded && !self.open.is_empty() => {
                    self.is_step_recorded = true;
                    if *is_recorded {
                        self.record(CheckpointKind::Step);
                    }
                }
                Action::Complete(call, is_made)
                    if self.is_step_recorded && !self.open.is_empty() =>
                {
                    let call = self.open.remove(call.index(self.open.len()));
                    self.end(call, *is_made);
                }
                Action::NextStep(is_recorded) if self.open.is_empty() => {
                    if *is_recorded {
                        self.record(CheckpointKind::StepEnd);
                    }
                    (self.step, self.is_step_recorded) = (self.step + 1, false);
                }
                Action::Stop { is_recorded, is_made } => {
                    let open = std::mem::take(&mut self.open);
                    let has_begun = std::mem::take(&mut self.is_step_recorded);
                    if has_begun {
                        self.lost.last_mut().unwrap().extend(&open);
                    }
                    if *is_recorded {
                        self.record(CheckpointKind::End);
                    }
                    self.seq += 1;
                    // A run that ended by itself has no running calls.
                    if *is_made && has_begun && !*is_recorded {
                        open.into_iter().for_each(|call| self.end(call, true));
                    }
                }
                Action::Record(_) | Action::Complete(..) | Action::NextStep(_) => {}
            }
        }
    }

    proptest! {
        /// Each change is in exactly the interval in which it was made, for any order of the records of the
        /// authorization, the state and the result.
        #[test]
        fn every_change_is_made_in_one_interval(actions in prop::collection::vec(action(), 0..60)) {
            let mut session = PlayedSession::begin();
            actions.iter().for_each(|action| session.play(action));
            let name = |edit: &AuthorizedEdit| edit.files[0].after.clone().unwrap().to_string();
            let PlayedSession { edits, states, made, lost, .. } = &session;
            for (index, found) in states.iter().enumerate() {
                let between = edits_between(edits, found.seq, states.get(index + 1));
                let names = |is_made: bool| -> Vec<String> {
                    let chosen = between.iter().filter(|edit| edit.is_made == is_made);
                    chosen.map(|edit| edit.after.unwrap().to_string()).collect()
                };
                let expected: Vec<String> =
                    made[index + 1].iter().map(|call| name(&edits[*call])).collect();
                prop_assert_eq!(names(true), expected);
                for call in &lost[index + 1] {
                    let name = name(&edits[*call]);
                    let is_made = edits[*call].completed.is_some_and(|(_, is_made)| is_made);
                    prop_assert!(is_made || names(false).contains(&name));
                }
            }
        }
    }
}
