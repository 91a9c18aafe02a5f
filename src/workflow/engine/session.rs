//! The session of an iteration: runs it, resumes it, or reads its end from its journal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::history::SessionReport;
use super::machine::{SessionEnd, SessionOutcome, WorkflowLimit};
use super::run::{StepSetup, WorkflowError};
use crate::app::{
    AppError, FinishedRun, RunDeadline, RunIo, RunRequest, SessionTarget, has_changed_files,
    restart_limits,
};
use crate::journal::{JournalError, SessionId, SessionStore};
use crate::machine::{CloseReason, RunStatus, State, StopReason};
use crate::view::sanitize;
use crate::workflow::batch::coordination::Charge;
use crate::workflow::self_eval::{EvaluatedRuns, RetryContext, evaluate};

/// Length limit of a stored answer, in characters.
pub(super) const MAX_ANSWER: usize = 4_000_000;

/// Upper limit of the time before the end of the workflow's time in which a run that ends by its timeout counts as
/// ended by the latter.
const CLOSING_TIME: Duration = Duration::from_secs(31);

/// A session to run.
pub(in crate::workflow) struct SessionRun<'a> {
    pub(in crate::workflow) setup: &'a StepSetup,
    pub(in crate::workflow) store: &'a SessionStore,
    pub(in crate::workflow) session: SessionId,
    /// The message with which the session begins.
    pub(in crate::workflow) task: Arc<str>,
    /// The usage of earlier evaluations of its answers, which no run of this process includes.
    pub(in crate::workflow) earlier_evaluations: Charge,
    /// The number of records in its journal at its last known end.
    pub(in crate::workflow) known_records: Option<u64>,
    /// The end of the workflow's time.
    pub(in crate::workflow) deadline: Option<Instant>,
}

impl SessionRun<'_> {
    /// Runs the session to its end. Returns `None` if it was interrupted.
    pub(in crate::workflow) fn run(
        &self,
        io: &RunIo,
    ) -> Result<Option<(SessionEnd, SessionReport)>, WorkflowError> {
        let StepSetup { setup, options } = self.setup;
        let retry = RetryContext {
            store: Some(self.store.clone()),
            options: options.clone(),
            exit_on_partial: None,
        };
        let finished = match self.find_end()? {
            Some(finished) => finished,
            None => setup.run(self.request()?, io.clone())?,
        };
        let done = evaluate(setup, &self.task, vec![finished], &retry, io);
        if done.interrupted_run.is_some() {
            return Ok(None);
        }
        let Some(reason) = done.stop_reason() else { return Err(WorkflowError::NoEnd) };
        if let StopReason::UserInterrupt(_) = reason {
            return Ok(None);
        }
        let (history, end) = self.store.load(self.session).map_err(AppError::from)?;
        let has_changed = has_changed_files(&setup.config, &history).unwrap_or(true);
        let outcome = self.outcome(reason);
        let answered = done.runs.get(done.answer_run).and_then(FinishedRun::outcome);
        let output = answered.and_then(|outcome| outcome.output.as_deref()).unwrap_or_default();
        let report = SessionReport {
            status: reason.status(),
            stop_reason: reason.name().to_owned(),
            exit_code: reason.exit_code(),
            output: sanitize::truncate(output, MAX_ANSWER),
            error: answered.and_then(|it| it.error.as_ref()).map(ToString::to_string),
            charge: charge(&done) + self.earlier_evaluations,
            records: end.position.seq,
            items: Vec::new(),
        };
        Ok(Some((SessionEnd { outcome, has_changed }, report)))
    }

    /// Returns the run if its session has ended in an earlier process that did not record the end in the workflow.
    fn find_end(&self) -> Result<Option<FinishedRun>, AppError> {
        let (history, end) = match self.store.load(self.session) {
            Ok(found) => found,
            Err(JournalError::UnknownSession(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let reason = history.machine.state.outcome().map(|outcome| outcome.reason);
        let is_over = reason.is_some_and(|it| !matches!(it, StopReason::UserInterrupt(_)));
        let is_new = self.known_records.is_none_or(|known| end.position.seq > known);
        Ok((is_over && is_new).then(|| FinishedRun {
            session: self.session,
            machine: history.machine,
            planned: Vec::new(),
            deadline: RunDeadline::default(),
        }))
    }

    fn request(&self) -> Result<RunRequest, AppError> {
        let (task, options) = (Arc::clone(&self.task), self.setup.options.clone());
        let mut request = RunRequest::resume_or_begin(self.store, self.session, task, options)?;
        if let SessionTarget::Stored(_, opened) = &mut request.target
            && let State::Done(_) = &opened.history.machine.state
        {
            restart_limits(opened, false);
        }
        Ok(request)
    }

    fn outcome(&self, reason: StopReason) -> SessionOutcome {
        let timeout = self.setup.setup.config.settings.limits.timeout.map(Duration::from);
        let closing = timeout.unwrap_or_default().div_f64(9.0).min(CLOSING_TIME);
        let is_last =
            self.deadline.is_some_and(|at| at.saturating_duration_since(Instant::now()) <= closing);
        match (reason.status(), reason) {
            (RunStatus::Success, _) => SessionOutcome::Answered,
            (_, StopReason::Closed(CloseReason::BudgetExceeded)) => {
                SessionOutcome::Limited(WorkflowLimit::Budget)
            }
            (_, StopReason::Closed(CloseReason::Timeout)) if is_last => {
                SessionOutcome::Limited(WorkflowLimit::Time)
            }
            (RunStatus::Partial, _) => SessionOutcome::Partial,
            (RunStatus::Failed, _) => SessionOutcome::Failed(reason.exit_code()),
        }
    }
}

/// Returns the usage of the runs. The usage of a run includes the earlier runs of its session.
fn charge(done: &EvaluatedRuns) -> Charge {
    let is_newest = |index: usize, run: &FinishedRun| {
        done.runs[index + 1..].iter().all(|later| later.session != run.session)
    };
    let newest = done.runs.iter().enumerate().filter(|(index, run)| is_newest(*index, run));
    newest.fold(Charge::default(), |sum, (_, run)| sum + run.machine.state.run().used.into())
}
