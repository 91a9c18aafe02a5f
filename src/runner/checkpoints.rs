//! Recording of the workspace's state: before the first call of a step that may change it, during the model call after
//! a step that may have changed anything, and at the end of a run that may have changed something. This attributes
//! changes that happen while no call runs to others. If an earlier process of the session was killed in a step, the
//! resumed run records the state at its beginning, for the same reason. The machine is not involved.

use std::sync::Arc;

use super::driver::Driver;
use super::executor::{DriverInput, EffectTask, TaskThread};
use crate::machine::{CallIntent, Deadline, DeadlineKind, Effect, Event, State};
use crate::port::{CancellationToken, JournalRecord};
use crate::types::{
    CheckpointKind, CheckpointOutcome, CheckpointRecord, EffectId, RunActivity, TimeSpan,
};

/// The progress of the recording.
#[derive(Debug, Default)]
pub(super) struct CheckpointProgress {
    /// The newest step whose state was recorded.
    step: Option<u32>,
    /// Whether a state is being recorded.
    is_running: bool,
    /// The activity since the newest record.
    since: RunActivity,
    /// The activity before the record that is being made.
    until: RunActivity,
    /// Whether a command was started that continues after its call. Any later call may depend on its effects, or wait
    /// for it.
    has_background: bool,
    /// Whether the state after the step is recorded, or can't be: a cancelled call may continue to change files for a
    /// while.
    is_settled: bool,
}

/// The effect ids of records that no call waits for. No other effect has these ids.
const END: EffectId = EffectId(u64::MAX);
const STEP_END: EffectId = EffectId(u64::MAX - 1);

impl Driver {
    /// Starts recording the state at the beginning of a run if an earlier process of the session was killed before it
    /// could record its changes. Otherwise, later changes by others would count as the session's.
    pub(super) fn record_first_state(&mut self) {
        let checkpoints = &self.ports.checkpoints;
        if checkpoints.is_enabled() && checkpoints.has_open_change() {
            let step = self.machine.state.run().steps;
            self.start_checkpoint(STEP_END, CheckpointKind::StepEnd, step);
        }
    }

    /// Takes the pending effects that have to wait for a record of the workspace's state, and starts the recording.
    pub(super) fn wait_for_checkpoint(&mut self) -> Vec<Effect> {
        if !self.ports.checkpoints.is_enabled() {
            return Vec::new();
        }
        let step = self.machine.state.run().steps;
        if !self.checkpoint.is_running && self.checkpoint.step == Some(step) {
            return Vec::new();
        }
        let pending = std::mem::take(&mut self.pending);
        let (waiting, ready) =
            pending.into_iter().partition(|effect| self.changed_by(effect).is_some());
        self.pending = ready;
        let first = waiting.iter().find_map(|effect| self.changed_by(effect));
        if let Some(id) = first.filter(|_| !self.checkpoint.is_running) {
            self.checkpoint.is_settled = false;
            self.start_checkpoint(id, CheckpointKind::Step, step);
        }
        waiting
    }

    /// Notes the activity of the pending effects, and starts recording the state after a step that may have changed
    /// anything.
    pub(super) fn note_activity(&mut self) {
        if !self.ports.checkpoints.is_enabled() {
            return;
        }
        let activity = self.pending.iter().map(|effect| match effect {
            Effect::CheckAnswer { .. } => RunActivity::Checks,
            Effect::RunTool { call, .. } if self.changed_by(effect).is_some() => {
                match self.approved.get(&call.id).map(|call| &call.intent) {
                    Some(CallIntent::Edit { .. }) => RunActivity::Edits,
                    _ => RunActivity::Commands,
                }
            }
            _ => RunActivity::Idle,
        });
        let checkpoints = &self.ports.checkpoints;
        let activity = activity.map(|seen| checkpoints.weigh(seen));
        let since = activity.fold(self.checkpoint.since, RunActivity::max);
        self.checkpoint.since = since;
        self.checkpoint.has_background |= self.pending.iter().any(|effect| match effect {
            Effect::RunTool { call, .. } => {
                let intent = self.approved.get(&call.id).map(|call| &call.intent);
                matches!(intent, Some(CallIntent::Background { .. }))
            }
            _ => false,
        });
        let is_cancel = |effect: &Effect| matches!(effect, Effect::Cancel { .. });
        self.checkpoint.is_settled |= self.pending.iter().any(is_cancel);
        let is_over = !matches!(self.machine.state, State::Executing(_) | State::Done(_));
        let CheckpointProgress { step, is_running, is_settled, .. } = self.checkpoint;
        if let Some(step) = step
            && since == RunActivity::Commands
            && is_over
            && !is_running
            && !is_settled
        {
            self.checkpoint.is_settled = true;
            self.start_checkpoint(STEP_END, CheckpointKind::StepEnd, step);
        }
    }

    /// Returns the effect's id if it is a call that may change the workspace and whose result is still awaited.
    fn changed_by(&self, effect: &Effect) -> Option<EffectId> {
        let Effect::RunTool { id, call, .. } = effect else { return None };
        let tracked = self.machine.state.call_of(*id)?;
        let approved = self.approved.get(&call.id);
        // For example, a command that is proved to only read.
        let is_read_only = approved.is_some_and(|call| call.is_read_only);
        let intent = approved.map_or(&CallIntent::Opaque, |call| &call.intent);
        let may_change = !is_read_only && intent.may_change(&tracked.access);
        (may_change || self.checkpoint.has_background).then_some(*id)
    }

    /// Starts recording. Cancelling the effect with this id cancels the recording.
    fn start_checkpoint(&mut self, id: EffectId, kind: CheckpointKind, step: u32) {
        self.keep_activity();
        self.checkpoint.is_running = true;
        let checkpoints = Arc::clone(&self.ports.checkpoints);
        // A background command continues while no other effect runs.
        let ongoing = match self.machine.state.run().commands.is_empty() {
            true => RunActivity::Idle,
            false => checkpoints.weigh(RunActivity::Commands),
        };
        let since = std::mem::replace(&mut self.checkpoint.since, ongoing);
        self.checkpoint.until = since;
        let cancel = CancellationToken::new();
        self.cancellations.insert(id, cancel.clone());
        self.executor.start(EffectTask {
            id,
            thread: TaskThread::Dedicated,
            cancel,
            run: Box::new(move |scope, _| {
                DriverInput::CheckpointTaken(checkpoints.record(kind, step, since, scope))
            }),
            on_failure: Box::new(move |why| {
                let outcome = CheckpointOutcome::Failed(why.into());
                let record = CheckpointRecord { kind, step, since, target: None, outcome };
                DriverInput::CheckpointTaken(Some(record))
            }),
        });
    }

    /// Extends the next record back to the start of the one that is being made, because that one may not be completed.
    fn keep_activity(&mut self) {
        if self.checkpoint.is_running {
            self.checkpoint.since = self.checkpoint.since.max(self.checkpoint.until);
        }
    }

    /// Writes a recorded state to the journal. The calls that wait for it start after that.
    pub(super) fn handle_checkpoint(mut self, record: Option<CheckpointRecord>) -> Self {
        let at = self.clock.now();
        let written = match &record {
            Some(record) => self.write(at, JournalRecord::Checkpoint(record)),
            None => Ok(()),
        };
        if written.is_err() || record.as_ref().and_then(CheckpointRecord::state).is_none() {
            self.keep_activity();
        }
        self.checkpoint.is_running = false;
        if let Some(record) = record.filter(|record| record.kind == CheckpointKind::Step) {
            self.checkpoint.step = Some(record.step);
        }
        match written {
            Ok(()) => self,
            Err(error) => self.fail_journal(&error),
        }
    }

    /// Records the state at the end of a run that may have changed it, within a time limit. Without this record, all
    /// changes since the previous record count as the session's. The caller syncs the journal once for this record and
    /// the end of the run.
    pub(super) fn record_end_state(&mut self) {
        let checkpoints = &self.ports.checkpoints;
        let may_have_changed = self.checkpoint.step.is_some() || checkpoints.has_open_change();
        if !may_have_changed || !checkpoints.is_enabled() {
            return;
        }
        // The record at the end includes this one.
        if let Some(cancel) = self.cancellations.remove(&STEP_END) {
            cancel.cancel();
        }
        self.wait_idle();
        // Inputs that have arrived since the end are not awaited.
        while self.executor.try_input().is_some() {}
        let (run, now) = (self.machine.state.run(), self.clock.now());
        let step = run.steps;
        let ends = run.rules.limits.timeout.map(|timeout| run.started_at.after(timeout));
        let (least, most) = (now.after(MIN_END_TIME), now.after(MAX_END_TIME));
        let at = ends.map_or(most, |ends| ends.clamp(least, most));
        let due = Deadline { at, kind: DeadlineKind::RunTimeout };
        self.start_checkpoint(END, CheckpointKind::End, step);
        let record = loop {
            match self.executor.wait_input(Some(due)) {
                Some(DriverInput::CheckpointTaken(record))
                    if record.as_ref().is_none_or(|it| it.kind == CheckpointKind::End) =>
                {
                    break record;
                }
                None | Some(DriverInput::Event(Event::Interrupt { .. })) => break None,
                Some(_) => {}
            }
        };
        if let Some(cancel) = self.cancellations.remove(&END) {
            cancel.cancel();
        }
        let Some(record) = record else {
            return log::warn!("the state of the workspace at the end of the run is not recorded");
        };
        let written =
            self.ports.journal.append(self.clock.now(), JournalRecord::Checkpoint(&record));
        if let Err(error) = written {
            log::warn!(
                "the state of the workspace at the end of the run is not in its journal: {error}"
            );
        }
    }
}

/// The minimum time for the record of the last state, even if the run has used all of its time.
const MIN_END_TIME: TimeSpan = TimeSpan::from_secs(2);

/// The maximum time for the record of the last state.
const MAX_END_TIME: TimeSpan = TimeSpan::from_secs(60);
