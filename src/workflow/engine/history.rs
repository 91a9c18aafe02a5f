//! The history of a workflow: the state of its machine, and details that the machine does not have.

use serde::{Deserialize, Serialize};

use super::machine::{
    Measurement, Program, SessionEnd, StepEvent, StepNeed, WorkflowActivity, WorkflowState, step,
};
use crate::journal::SessionId;
use crate::machine::RunStatus;
use crate::workflow::batch::coordination::Charge;

/// Details of an event that the machine does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventDetail {
    /// The item of the iteration that begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The report of the session that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<SessionReport>,
    /// The checks that ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckReport>,
    /// The reason why there is no number, or a description of an undo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An event in the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredEvent {
    /// The time at which it was written, in microseconds since 1970.
    pub at: i64,
    /// The event.
    pub event: StepEvent,
    /// The details.
    #[serde(default)]
    pub detail: EventDetail,
}

/// The report of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionReport {
    /// The status of the run.
    pub status: RunStatus,
    /// The stop reason.
    pub stop_reason: String,
    /// The exit code.
    pub exit_code: u8,
    /// The answer, up to a length limit.
    pub output: String,
    /// The error of the run.
    #[serde(default)]
    pub error: Option<String>,
    /// The usage in total, with its evaluations.
    pub charge: Charge,
    /// The number of records in its journal at its end.
    pub records: u64,
    /// The reports of parallel items. Each of them had a session; the iteration itself had none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemReport>,
}

/// The report of an item that ran in parallel with others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemReport {
    /// The item.
    pub item: String,
    /// The session, in the folder of the batch.
    #[serde(rename = "session_id")]
    pub session: Option<String>,
    /// The status of the run; `unfinished` if the run has not ended.
    pub status: String,
    /// The stop reason of the run.
    pub stop_reason: Option<String>,
    /// The branch of the worktree; `None` without changes.
    pub branch: Option<String>,
    /// The cost in dollars; `None` if it is unknown.
    pub cost: Option<f64>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The command.
    pub name: String,
    /// Whether it succeeded.
    pub passed: bool,
    /// The duration.
    pub seconds: f64,
    /// The output, if the check failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The record of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct IterationRecord {
    /// The index of the step.
    pub step: usize,
    /// The number of the iteration, from one.
    pub number: u32,
    /// The item, if the step has items.
    pub item: Option<String>,
    /// The session.
    pub session: SessionId,
    /// The report of the session, once the session has ended.
    pub report: Option<SessionReport>,
    /// Whether the session has changed files.
    pub has_changed: bool,
    /// The checks after the iteration.
    pub checks: Vec<CheckReport>,
    /// The number after the iteration, or the reason why there is none.
    pub measured: Option<Result<Measurement, String>>,
    /// Whether the changes were undone.
    pub is_undone: bool,
}

/// The history of a workflow.
#[derive(Clone, Debug)]
pub struct WorkflowHistory {
    /// The state of the machine.
    pub state: WorkflowState,
    /// The iterations that have begun, in order.
    pub iterations: Vec<IterationRecord>,
    /// The newest results of the checks of the present step.
    pub checks: Vec<CheckReport>,
    /// The number of items of the present step, if it has items.
    pub items: Option<u32>,
    /// The number before the first iteration of the present step, or the reason why there is none.
    pub first_measured: Option<Result<Measurement, String>>,
}

impl WorkflowHistory {
    /// Returns the history after these events.
    pub fn replay(program: &Program, events: &[StoredEvent]) -> Self {
        let mut history = Self {
            state: program.start(),
            iterations: Vec::new(),
            checks: Vec::new(),
            items: None,
            first_measured: None,
        };
        for StoredEvent { event, detail, .. } in events {
            history.apply(program, *event, detail);
        }
        history
    }

    /// Adds an event.
    pub fn apply(&mut self, program: &Program, event: StepEvent, detail: &EventDetail) {
        let before = self.state;
        self.state = step(program, before, event);
        if before.place.step != self.state.place.step {
            self.checks.clear();
            (self.items, self.first_measured) = (None, None);
        } else if let StepEvent::Decided(StepNeed::Items(count)) = event {
            self.items = Some(count);
        }
        if let (StepEvent::Begun(session), WorkflowActivity::Running(_)) =
            (event, self.state.activity)
        {
            let place = self.state.place;
            self.iterations.push(IterationRecord {
                step: place.step,
                number: place.iteration,
                item: detail.item.clone(),
                session,
                report: None,
                has_changed: false,
                checks: Vec::new(),
                measured: None,
                is_undone: false,
            });
        }
        let current = before.place;
        let newest = self.iterations.last_mut();
        let newest = newest.filter(|it| it.step == current.step && it.number == current.iteration);
        match event {
            StepEvent::Ended(SessionEnd { has_changed, .. }) => {
                if let Some(iteration) = newest {
                    iteration.report.clone_from(&detail.report);
                    iteration.has_changed |= has_changed;
                }
            }
            StepEvent::Tested { .. } | StepEvent::Decided(_) => {
                if self.state.place.step == current.step {
                    self.checks.clone_from(&detail.checks);
                }
                if let (Some(iteration), StepEvent::Tested { .. }) = (newest, event) {
                    iteration.checks.clone_from(&detail.checks);
                }
            }
            StepEvent::Measured(number) => {
                let why = || detail.note.clone().unwrap_or_default();
                let measured = Some(number.ok_or_else(why));
                match newest.filter(|_| current.best.is_some()) {
                    Some(iteration) => iteration.measured = measured,
                    None => self.first_measured = measured,
                }
            }
            StepEvent::Undone => {
                if let Some(iteration) = newest {
                    iteration.is_undone = true;
                }
            }
            StepEvent::Begun(_) | StepEvent::Limited(_) | StepEvent::Continued { .. } => {}
        }
    }

    /// Returns the usage of all sessions except this one.
    pub fn spent_without(&self, session: Option<SessionId>) -> Charge {
        let others = self.iterations.iter().filter(|it| Some(it.session) != session);
        let charges = others.filter_map(|it| it.report.as_ref()).map(|report| report.charge);
        charges.fold(Charge::default(), |sum, charge| sum + charge)
    }

    /// Returns the number of records in a session's journal at its end; `None` if the session has not ended.
    pub fn records_at_end(&self, session: SessionId) -> Option<u64> {
        let iteration = self.iterations.iter().find(|it| it.session == session)?;
        Some(iteration.report.as_ref()?.records)
    }
}
