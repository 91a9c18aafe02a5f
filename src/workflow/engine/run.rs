//! Running a workflow: performs the activity of each state, and records the resulting event.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;

use super::condition::{Condition, parse_items, render};
use super::history::{CheckReport, EventDetail, SessionReport, WorkflowHistory};
use super::journal::{WorkflowJournal, WorkflowJournalError};
use super::machine::{
    Measurement, Program, SessionEnd, SessionOutcome, StepEvent, StepNeed, WorkflowActivity,
    WorkflowEnd, WorkflowLimit,
};
use super::parallel_items::ParallelItems;
use super::prompt::iteration_message;
use super::session::SessionRun;
use super::{MAX_ITEMS, StepDefinition, Workflow};
use crate::app::{AppError, RunInterrupts, RunIo, RunSetup, UndoneSession, undo_whole_session};
use crate::journal::{SessionId, SessionStore};
use crate::machine::CloseReason;
use crate::types::{MicroUsd, Signal, TimeSpan, pluralize};
use crate::view::sanitize;
use crate::workflow::batch::BatchFileError;
use crate::workflow::batch::BatchRunError;
use crate::workflow::batch::coordination::{ChargeLimits, CoordinationError};
use crate::workflow::command_check::{FinishedCommand, run_check};
use crate::workflow::self_eval::{evaluation_charge, stored_evaluations};
use crate::workspace::worktree::WorktreeError;

/// The setup of a step.
#[derive(Clone)]
pub struct StepSetup {
    /// The agent, the model and the workspace.
    pub setup: RunSetup,
    /// The options to store in its sessions.
    pub options: Value,
}

/// The limits of a workflow as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkflowLimits {
    /// The limits of cost and tokens.
    pub charge: ChargeLimits,
    /// The end of the time.
    pub deadline: Option<Instant>,
}

/// A workflow to run, and everything the run needs.
pub struct WorkflowRun<'a> {
    /// The steps.
    pub workflow: &'a Workflow,
    /// The program in the journal.
    pub program: &'a Program,
    /// The setup of each step.
    pub setups: &'a [StepSetup],
    /// The store of the sessions.
    pub store: &'a SessionStore,
    /// The limits.
    pub limits: WorkflowLimits,
    /// Interrupts the workflow, which can be continued.
    pub interrupts: &'a RunInterrupts,
    /// The reporter and the confirmer of the sessions.
    pub io: &'a RunIo,
    /// Receives the events of the workflow.
    pub observer: &'a dyn WorkflowObserver,
}

/// An event of a workflow.
#[derive(Clone, Copy, Debug)]
pub enum WorkflowEvent<'a> {
    /// The session of an iteration begins, or is resumed.
    Iteration {
        /// The step.
        step: &'a StepDefinition,
        /// The number of the iteration, from one.
        number: u32,
        /// The maximum number of iterations.
        of: u32,
        /// The item, if the step has items.
        item: Option<&'a str>,
        /// Whether the session had begun before.
        is_resumed: bool,
    },
    /// A step was skipped, because it has nothing to do.
    Skipped(&'a StepDefinition),
    /// A check ended.
    Checked(&'a CheckReport),
    /// A number was measured.
    Measured {
        /// The number, or the reason why there is none.
        result: Result<Measurement, &'a str>,
        /// The best number so far; `None` for the first one.
        best: Option<Measurement>,
        /// Whether the iteration is kept.
        is_kept: bool,
    },
    /// An iteration was undone, as described.
    Undone(&'a str),
    /// A parallel item ended.
    ItemEnded {
        /// The step.
        step: &'a StepDefinition,
        /// The number of the item, from one.
        number: u32,
        /// The result document.
        result: &'a Value,
    },
    /// An item ended its step.
    ItemFailed {
        /// The step.
        step: &'a StepDefinition,
        /// The item and the reason.
        why: &'a str,
    },
    /// The cost of the parallel items so far.
    Spent(MicroUsd),
}

/// Receives the events of a workflow. Events of parallel items come on the threads of the items.
pub trait WorkflowObserver: Sync {
    /// Receives an event.
    fn on_event(&self, event: WorkflowEvent<'_>);
}

/// The outcome of a command for a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkflowOutcome {
    /// The workflow has ended, or its time has; then it can be continued.
    Ended(WorkflowEnd),
    /// A signal interrupted the workflow, which can be continued.
    Interrupted(Signal),
}

/// The reason why a workflow could not be run. The same command tries the failed part again.
#[derive(Debug, Error)]
pub enum WorkflowError {
    /// A session could not be run or undone.
    #[error(transparent)]
    App(#[from] AppError),
    /// The journal of the workflow failed.
    #[error(transparent)]
    Journal(#[from] WorkflowJournalError),
    /// An iteration could not be undone completely. The same command tries again.
    #[error(
        "the changes of session {session} could not be undone: {}",
        paths.iter().map(|(path, why)| format!("{}: {why}", path.display())).collect::<Vec<_>>().join("; ")
    )]
    NotUndone {
        /// The session of the iteration.
        session: SessionId,
        /// The paths that were not restored, with the reasons.
        paths: Vec<(PathBuf, String)>,
    },
    /// Parallel items could not be coordinated.
    #[error(transparent)]
    Coordination(#[from] CoordinationError),
    /// Parallel items could not be run.
    #[error(transparent)]
    Items(#[from] BatchRunError),
    /// A file of parallel items could not be written.
    #[error(transparent)]
    File(#[from] BatchFileError),
    /// A worktree of parallel items could not be used.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    /// A run left no result.
    #[error("the run left no result")]
    NoEnd,
}

/// Limit of a command's output, in bytes of the beginning and as many of the end.
const MAX_OUTPUT_BYTES: usize = 4 << 10;

/// The maximum number of paths in a note.
const MAX_LISTED: usize = 20;

/// Length limit of an output line that is shown in an error.
const MAX_SHOWN_LINE: usize = 200;

impl WorkflowRun<'_> {
    /// Runs the workflow from the end of its journal.
    ///
    /// # Errors
    ///
    /// Fails if a session can't be run or undone, and if the journal can't be written.
    pub fn run(
        &self,
        journal: &mut WorkflowJournal,
        history: &mut WorkflowHistory,
    ) -> Result<WorkflowOutcome, WorkflowError> {
        loop {
            if let Some(signal) = self.interrupts.signal() {
                return Ok(WorkflowOutcome::Interrupted(signal));
            }
            let Some(step) = self.workflow.steps.get(history.state.place.step) else {
                return Ok(WorkflowOutcome::Ended(WorkflowEnd::Succeeded));
            };
            let active = ActiveStep { run: self, step, program: self.program, history };
            let activity = history.state.activity;
            if let WorkflowActivity::Done(end) = activity {
                return Ok(WorkflowOutcome::Ended(end));
            }
            let Some((event, detail)) = active.perform(activity)? else {
                // The time ended during a check, so its result is unknown.
                let timeout =
                    WorkflowOutcome::Ended(WorkflowEnd::LimitReached(WorkflowLimit::Time));
                return Ok(self.interrupts.signal().map_or(timeout, WorkflowOutcome::Interrupted));
            };
            journal.append(event, &detail)?;
            self.show(step, history, event, &detail);
            history.apply(self.program, event, &detail);
        }
    }

    /// Reports an event. `history` is the history before it.
    fn show(
        &self,
        step: &StepDefinition,
        history: &WorkflowHistory,
        event: StepEvent,
        detail: &EventDetail,
    ) {
        let place = &history.state.place;
        match event {
            StepEvent::Decided(StepNeed::Nothing | StepNeed::Items(0)) => {
                self.observer.on_event(WorkflowEvent::Skipped(step));
            }
            StepEvent::Measured(number) => {
                let direction = step.metric.as_ref().map(|metric| metric.direction);
                let is_better = number.zip(place.best).zip(direction);
                let is_better = is_better.is_some_and(|((new, best), it)| it.is_better(new, best));
                let why = detail.note.as_deref().unwrap_or_default();
                self.observer.on_event(WorkflowEvent::Measured {
                    result: number.ok_or(why),
                    best: place.best,
                    is_kept: place.best.is_none() || is_better,
                });
            }
            StepEvent::Undone => {
                let note = detail.note.as_deref().unwrap_or_default();
                self.observer.on_event(WorkflowEvent::Undone(note));
            }
            StepEvent::Decided(_)
            | StepEvent::Begun(_)
            | StepEvent::Ended(_)
            | StepEvent::Tested { .. }
            | StepEvent::Limited(_)
            | StepEvent::Continued { .. } => {}
        }
    }

    fn time_left(&self) -> Option<Duration> {
        self.limits.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn is_out_of_time(&self) -> bool {
        self.time_left() == Some(Duration::ZERO)
    }
}

/// The step in progress.
struct ActiveStep<'a> {
    run: &'a WorkflowRun<'a>,
    step: &'a StepDefinition,
    program: &'a Program,
    history: &'a WorkflowHistory,
}

impl ActiveStep<'_> {
    /// Performs an activity. Returns `None` if it was interrupted, or the time ended.
    fn perform(
        &self,
        activity: WorkflowActivity,
    ) -> Result<Option<(StepEvent, EventDetail)>, WorkflowError> {
        match activity {
            WorkflowActivity::Deciding => Ok(self.decide()),
            WorkflowActivity::Measuring => Ok(self.measure()),
            WorkflowActivity::Starting => {
                let limit = self.reached_limit();
                let event = match limit {
                    Some(limit) => StepEvent::Limited(limit),
                    None => StepEvent::Begun(SessionId::generate()),
                };
                let next = self.history.state.place.iteration + 1;
                let item = self.item(next).filter(|_| limit.is_none());
                Ok(Some((event, EventDetail { item, ..EventDetail::default() })))
            }
            WorkflowActivity::Running(session) => {
                let ended = match self.step.parallel {
                    None => self.run_session(session)?,
                    Some(jobs) => self.run_items(session, jobs)?,
                };
                Ok(ended.map(|(end, report)| {
                    let detail = EventDetail { report: Some(report), ..EventDetail::default() };
                    (StepEvent::Ended(end), detail)
                }))
            }
            WorkflowActivity::Undoing(session) => {
                let RunSetup { config, env, .. } = &self.setup()?.setup;
                let done = undo_whole_session(config, env, self.run.store, session)?;
                if !done.unrestorable.is_empty() {
                    return Err(WorkflowError::NotUndone { session, paths: done.unrestorable });
                }
                let note = Some(self.describe_undo(session, &done));
                Ok(Some((StepEvent::Undone, EventDetail { note, ..EventDetail::default() })))
            }
            WorkflowActivity::Testing => Ok(self.run_checks().map(|checks| {
                let is_passed =
                    checks.iter().all(|check| check.passed) && self.holds(self.step.until.as_ref());
                (StepEvent::Tested { is_passed }, EventDetail { checks, ..EventDetail::default() })
            })),
            WorkflowActivity::Done(_) => Ok(None),
        }
    }

    /// Returns a description of an undo, and how to revert it, since it may include changes that others have made
    /// meanwhile.
    fn describe_undo(&self, session: SessionId, done: &UndoneSession) -> String {
        let names = |paths: &[PathBuf]| {
            let shown = paths.iter().take(MAX_LISTED);
            let shown: Vec<_> = shown.map(|path| sanitize::path(path)).collect();
            let more = paths.len().saturating_sub(MAX_LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", shown.join(", "))
        };
        let UndoneSession { restored, copies, .. } = done;
        let mut note = pluralize(restored.len(), "path restored", "paths restored");
        if !restored.is_empty() {
            let folder = sanitize::path(self.run.store.root());
            note.push_str(&format!(
                ": {}; `architect undo {session} --set sessions.dir={folder}` takes this back",
                names(restored)
            ));
        }
        if !copies.is_empty() {
            note.push_str(&format!("; changed meanwhile, and kept as {}", names(copies)));
        }
        note
    }

    /// Returns whether a condition holds, if there is one.
    fn holds(&self, condition: Option<&Condition>) -> bool {
        condition.is_none_or(|it| it.holds(&|name| self.output_of(name)))
    }

    /// Returns the newest answer of a step, or the answers of all its items; an empty text if the step was skipped.
    fn output_of(&self, name: &str) -> String {
        let Some(index) = self.run.workflow.steps.iter().position(|step| step.name == name) else {
            return String::new();
        };
        let own = self.history.iterations.iter().filter(|it| it.step == index);
        let mut answers =
            own.map(|it| it.report.as_ref().map_or("", |report| report.output.as_str()));
        match &self.run.workflow.steps[index].items {
            None => answers.next_back().unwrap_or_default().to_owned(),
            Some(_) => answers.map(str::trim_end).collect::<Vec<_>>().join("\n\n"),
        }
    }

    /// Returns the items of the step. They depend only on answers that don't change any more.
    fn items(&self) -> Option<Vec<String>> {
        let list = self.step.items.as_ref()?;
        Some(parse_items(&render(list, None, &|name| self.output_of(name))))
    }

    /// Returns the item of an iteration of the step.
    fn item(&self, number: u32) -> Option<String> {
        if self.step.parallel.is_some() {
            return None;
        }
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.items()?.get(index).cloned()
    }

    /// Returns the task of an iteration, with the answers of earlier steps filled in.
    fn task(&self, item: Option<&str>) -> String {
        match self.step.has_placeholders {
            true => render(&self.step.prompt, item, &|name| self.output_of(name)),
            false => self.step.prompt.clone(),
        }
    }

    fn setup(&self) -> Result<&StepSetup, WorkflowError> {
        self.run.setups.get(self.history.state.place.step).ok_or(WorkflowError::NoEnd)
    }

    fn decide(&self) -> Option<(StepEvent, EventDetail)> {
        let checks = match self.step.is_skipped_if_checked {
            true => self.run_checks()?,
            false => Vec::new(),
        };
        let is_needed = (checks.is_empty() || checks.iter().any(|check| !check.passed))
            && self.holds(self.step.when.as_ref());
        let need = match self.items().filter(|_| is_needed) {
            _ if !is_needed => StepNeed::Nothing,
            None => StepNeed::Iterations,
            Some(items) => {
                let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
                match self.step.parallel {
                    Some(_) if (1..=MAX_ITEMS).contains(&count) => StepNeed::Iterations,
                    Some(_) | None => StepNeed::Items(count),
                }
            }
        };
        Some((StepEvent::Decided(need), EventDetail { checks, ..EventDetail::default() }))
    }

    /// Returns the limit that allows no further session, if one is reached.
    fn reached_limit(&self) -> Option<WorkflowLimit> {
        let spent = self.history.spent_without(None);
        if self.run.is_out_of_time() {
            Some(WorkflowLimit::Time)
        } else if self.run.limits.charge.are_reached(spent) {
            Some(WorkflowLimit::Budget)
        } else {
            None
        }
    }

    /// Returns the report of a session that was ended by the budget, if the remaining budget is not larger than it was
    /// then: a resume would only pay for another final summary.
    fn used_up(&self, session: SessionId) -> Result<Option<SessionReport>, WorkflowError> {
        let iteration = self.history.iterations.iter().find(|it| it.session == session);
        let Some(report) = iteration.and_then(|it| it.report.as_ref()) else { return Ok(None) };
        if report.stop_reason != CloseReason::BudgetExceeded.as_str() {
            return Ok(None);
        }
        let (stored, end) = self.run.store.load(session).map_err(AppError::from)?;
        let left = self.run.limits.charge.less(self.history.spent_without(Some(session)));
        let had = &stored.machine.state.run().rules.limits;
        let is_raised = is_raised(left.money, had.budget) || is_raised(left.tokens, had.max_tokens);
        Ok((!is_raised && end.position.seq == report.records).then(|| report.clone()))
    }

    fn run_session(
        &self,
        session: SessionId,
    ) -> Result<Option<(SessionEnd, SessionReport)>, WorkflowError> {
        if let Some(report) = self.used_up(session)? {
            let outcome = SessionOutcome::Limited(WorkflowLimit::Budget);
            return Ok(Some((SessionEnd { outcome, has_changed: false }, report)));
        }
        if self.run.is_out_of_time() {
            return Ok(None);
        }
        let earlier = stored_evaluations(self.run.store, session).map_err(AppError::from)?;
        let earlier = evaluation_charge(&earlier);
        let spent = self.history.spent_without(Some(session)) + earlier;
        let StepSetup { setup, options } = self.setup()?;
        let mut config = setup.config.clone();
        let limits = &mut config.settings.limits;
        let left = self.run.limits.charge.less(spent);
        (limits.budget_usd, limits.max_tokens) = (left.money, left.tokens);
        limits.timeout = self.run.time_left().map(TimeSpan::from);
        let setup = StepSetup { setup: setup.with_config(config), options: options.clone() };
        let place = &self.history.state.place;
        let of = self.program.max_iterations(place);
        let item = self.item(place.iteration);
        let task = self.task(item.as_deref());
        let run = SessionRun {
            setup: &setup,
            store: self.run.store,
            session,
            task: iteration_message(self.step, &task, self.history, of).into(),
            earlier_evaluations: earlier,
            known_records: self.history.records_at_end(session),
            deadline: self.run.limits.deadline,
        };
        self.run.observer.on_event(WorkflowEvent::Iteration {
            step: self.step,
            number: place.iteration,
            of,
            item: item.as_deref(),
            is_resumed: self.run.store.reader(session).is_ok(),
        });
        run.run(self.run.io)
    }

    /// Runs all items of the step, with up to `jobs` at the same time.
    fn run_items(
        &self,
        id: SessionId,
        jobs: u32,
    ) -> Result<Option<(SessionEnd, SessionReport)>, WorkflowError> {
        if self.run.is_out_of_time() {
            return Ok(None);
        }
        let spent = self.history.spent_without(Some(id));
        let message = |item: String| {
            let task = self.task(Some(&item));
            let message = iteration_message(self.step, &task, self.history, 1);
            (item, message)
        };
        let items = ParallelItems {
            run: self.run,
            step: self.step,
            setup: self.setup()?,
            id,
            jobs: usize::try_from(jobs).unwrap_or(1),
            items: self.items().unwrap_or_default().into_iter().map(message).collect(),
            limits: self.run.limits.charge.less(spent),
            is_repeated: self.history.records_at_end(id).is_some(),
        };
        items.run()
    }

    /// Runs all checks of the step. Returns `None` if one was interrupted, or the time ended.
    fn run_checks(&self) -> Option<Vec<CheckReport>> {
        let mut checks = Vec::new();
        for line in &self.step.checks {
            let check = self.run_command(line)?.into_check()?;
            self.run.observer.on_event(WorkflowEvent::Checked(&check));
            checks.push(check);
        }
        Some(checks)
    }

    fn measure(&self) -> Option<(StepEvent, EventDetail)> {
        let line = self.step.metric.as_ref().map_or("", |metric| &metric.command);
        let output = self.run_command(line)?.output?;
        let (number, note) = match output.and_then(|output| parse_number(&output)) {
            Ok(number) => (Some(number), None),
            Err(why) => (None, Some(why)),
        };
        Some((StepEvent::Measured(number), EventDetail { note, ..EventDetail::default() }))
    }

    /// Runs a command in the workspace. Returns `None` if the time ended.
    fn run_command(&self, line: &str) -> Option<FinishedCommand> {
        let StepSetup { setup, .. } = self.setup().ok()?;
        let left = self.run.time_left();
        if left == Some(Duration::ZERO) {
            return None;
        }
        let report = run_check(setup, line, left, MAX_OUTPUT_BYTES);
        let has_failed = matches!(report.output, Some(Err(_)));
        (!has_failed || !self.run.is_out_of_time()).then_some(report)
    }
}

/// Returns whether a limit is higher now than before. `None` is no limit.
fn is_raised<T: Ord>(now: Option<T>, before: Option<T>) -> bool {
    before.is_some_and(|before| now.is_none_or(|now| now > before))
}

/// Returns the number in the last line of an output.
fn parse_number(output: &str) -> Result<Measurement, String> {
    let last = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let Some(last) = last else { return Err("the command printed nothing".to_owned()) };
    last.parse::<f64>().ok().and_then(Measurement::new).ok_or_else(|| {
        format!(
            "the last line of the output is not a number: {}",
            sanitize::headline(last, MAX_SHOWN_LINE)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_in_the_last_line() {
        for (output, number) in
            [("12\n", 12.0), ("ms: 3\n 1.5e3 \n\n", 1500.0), ("-0.25", -0.25), ("-0", 0.0)]
        {
            assert_eq!(parse_number(output).ok(), Measurement::new(number), "{output}");
        }
        for output in ["", "\n", "3 ms", "12\nms", "nan", "inf"] {
            assert!(parse_number(output).is_err(), "{output}");
        }
    }
}
