//! The machine of a workflow: steps, each with iterations, each of them one session.
//!
//! [`step`] computes the next state from a state and an event. The [`WorkflowActivity`] of a state names the activity
//! in progress, so that a state restored from the journal is continued by it. The machine is pure, without a clock or
//! I/O; it contains no prompts, outputs or commands of the user. The specification is `statecharts/workflow.json`.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::journal::SessionId;
use crate::types::word_enum;

/// The program of a workflow: the rules of its steps, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Program {
    /// The rules of the steps.
    pub steps: Vec<StepRules>,
}

/// The rules of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepRules {
    /// The condition for the end of the step.
    pub goal: StepGoal,
    /// The direction in which each iteration has to improve a number. An iteration that does not is undone.
    pub metric: Option<MetricDirection>,
    /// The maximum number of iterations, and of items.
    pub iterations: u32,
    /// The number of iterations in a row without changes after which the step ends.
    pub max_unchanged: Option<u32>,
    /// Whether a completed step is decided again when the command is repeated.
    pub is_rechecked: bool,
}

/// The goal of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepGoal {
    /// All iterations have answered.
    Answered,
    /// The tests pass after an iteration.
    Tested,
    /// The tests pass after each iteration.
    EachTested,
    /// There is no goal: the step ends by its limits.
    Unbounded,
}

/// The direction of improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricDirection {
    /// Larger numbers are better.
    Maximize,
    /// Smaller numbers are better.
    Minimize,
}

/// A measured number, never NaN.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measurement(f64);

/// The position of a workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StepPosition {
    /// The index of the step.
    pub step: usize,
    /// The number of iterations of the step that have begun.
    pub iteration: u32,
    /// The maximum number of iterations, if the command has changed it or the step has counted its items.
    pub iterations: Option<u32>,
    /// The number of iterations in a row that changed nothing.
    pub unchanged: u32,
    /// The best measured number of the step.
    pub best: Option<Measurement>,
    /// The session of the incomplete iteration.
    pub session: Option<SessionId>,
    /// The limit that has ended the session of this iteration.
    pub limit: Option<WorkflowLimit>,
}

/// The state of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkflowState {
    /// The position.
    pub place: StepPosition,
    /// The activity in progress. Its completion is the next event.
    pub activity: WorkflowActivity,
}

/// An activity of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkflowActivity {
    /// Deciding whether the step has anything to do.
    Deciding,
    /// Measuring the number.
    Measuring,
    /// Beginning a session, unless a limit is reached.
    Starting,
    /// Running the session of an iteration: it begins if it doesn't exist, and is resumed otherwise.
    Running(SessionId),
    /// Undoing the changes of this session.
    Undoing(SessionId),
    /// Running the tests of the step.
    Testing,
    /// The workflow has ended, until the command is repeated.
    Done(WorkflowEnd),
}

word_enum! {
    /// A limit of the whole workflow.
    pub enum WorkflowLimit {
        /// The limit of money or tokens.
        Budget = "budget",
        /// The limit of time.
        Time = "time",
    }
}

/// The end of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowEnd {
    /// Every step is done.
    Succeeded,
    /// A step has used all its iterations without reaching its goal.
    IterationsUsed,
    /// Several iterations in a row changed nothing.
    NothingChanged,
    /// There are more items than a step may have.
    TooManyItems,
    /// The tests failed after an iteration of a step whose iterations all have to pass them.
    ItemFailed,
    /// The run of an iteration ended early, in a step without tests that could decide. It can be resumed.
    Incomplete,
    /// A limit of the whole workflow was reached.
    LimitReached(WorkflowLimit),
    /// A session failed, with this exit code.
    SessionFailed(u8),
    /// The number could not be measured before the first iteration.
    NotMeasured,
}

/// An event of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEvent {
    /// The step's need was decided.
    Decided(StepNeed),
    /// The number was measured; `None` if the measurement failed.
    Measured(Option<Measurement>),
    /// An iteration began, with this session.
    Begun(SessionId),
    /// The session of the iteration ended.
    Ended(SessionEnd),
    /// The changes of the iteration were undone.
    Undone,
    /// The tests of the step ran.
    Tested {
        /// Whether all tests passed.
        is_passed: bool,
    },
    /// A limit of the whole workflow allows no further session.
    Limited(WorkflowLimit),
    /// The command was repeated.
    Continued {
        /// The new maximum number of iterations; `None` keeps the present one.
        iterations: Option<u32>,
    },
}

/// The need of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepNeed {
    /// Nothing: the condition of the step does not hold, or its goal is reached already.
    Nothing,
    /// The iterations of the step.
    Iterations,
    /// An iteration for each of this many items.
    Items(u32),
}

/// The end of an iteration's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionEnd {
    /// The outcome of the run.
    pub outcome: SessionOutcome,
    /// Whether it has changed files. If that is unknown, it counts as changed.
    pub has_changed: bool,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionOutcome {
    /// Success.
    Answered,
    /// An early end, by a limit of the run.
    Partial,
    /// An end by a limit of the whole workflow. The session can be resumed when the limit is raised.
    Limited(WorkflowLimit),
    /// Failure, with this exit code. The session can be resumed.
    Failed(u8),
}

/// Returns the state after an event. An unexpected event leaves the state unchanged.
pub fn step(program: &Program, state: WorkflowState, event: StepEvent) -> WorkflowState {
    let WorkflowState { place, activity } = state;
    match (event, activity) {
        (StepEvent::Decided(need), WorkflowActivity::Deciding) => program.decided(place, need),
        (StepEvent::Measured(number), WorkflowActivity::Measuring) => {
            program.measured(place, number)
        }
        (StepEvent::Begun(session), WorkflowActivity::Starting) => {
            let iteration = place.iteration + 1;
            let place = StepPosition { iteration, session: Some(session), limit: None, ..place };
            WorkflowActivity::Running(session).at(place)
        }
        (StepEvent::Ended(end), WorkflowActivity::Running(_)) => program.ended(place, end),
        (StepEvent::Undone, WorkflowActivity::Undoing(_)) => {
            program.continue_step(StepPosition { session: None, ..place })
        }
        (StepEvent::Tested { is_passed }, WorkflowActivity::Testing) => {
            program.tested(place, is_passed)
        }
        (StepEvent::Limited(limit), WorkflowActivity::Starting) => {
            WorkflowActivity::Done(WorkflowEnd::LimitReached(limit)).at(place)
        }
        (StepEvent::Continued { iterations }, _) => {
            let place = StepPosition { iterations: iterations.or(place.iterations), ..place };
            match activity {
                WorkflowActivity::Done(end) => program.again(place, end),
                activity => activity.at(place),
            }
        }
        _ => state,
    }
}

impl Program {
    /// Returns the state before the first event.
    pub fn start(&self) -> WorkflowState {
        WorkflowActivity::Deciding.at(StepPosition::default())
    }

    /// Returns the rules of the step at a position.
    pub fn rules(&self, place: &StepPosition) -> Option<&StepRules> {
        self.steps.get(place.step)
    }

    /// Returns the maximum number of iterations at a position.
    pub fn max_iterations(&self, place: &StepPosition) -> u32 {
        let usual = self.rules(place).map_or(0, |rules| rules.iterations);
        place.iterations.unwrap_or(usual)
    }

    fn decided(&self, mut place: StepPosition, need: StepNeed) -> WorkflowState {
        match need {
            StepNeed::Nothing | StepNeed::Items(0) => return self.enter_next_step(place),
            StepNeed::Items(count) if count > self.most_items(&place) => {
                return WorkflowActivity::Done(WorkflowEnd::TooManyItems).at(place);
            }
            StepNeed::Items(count) => place.iterations = Some(count),
            StepNeed::Iterations => {}
        }
        match place.session {
            // The session was ended by a limit that has been raised since.
            Some(session) => {
                WorkflowActivity::Running(session).at(StepPosition { limit: None, ..place })
            }
            None if self.is_unmeasured(&place) => WorkflowActivity::Measuring.at(place),
            None => self.continue_step(place),
        }
    }

    /// Returns the maximum number of items at a position.
    pub fn most_items(&self, place: &StepPosition) -> u32 {
        self.rules(place).map_or(0, |rules| rules.iterations)
    }

    fn tested(&self, place: StepPosition, is_passed: bool) -> WorkflowState {
        let is_each = self.rules(&place).is_some_and(|rules| rules.goal == StepGoal::EachTested);
        let is_last = place.iteration >= self.max_iterations(&place);
        match (is_each, is_passed) {
            (true, false) => WorkflowActivity::Done(WorkflowEnd::ItemFailed).at(place),
            (true, true) if !is_last => self.continue_step(place),
            (_, true) => self.enter_next_step(place),
            (false, false) => self.continue_step(place),
        }
    }

    /// Returns whether the number has to be measured before the first iteration.
    fn is_unmeasured(&self, place: &StepPosition) -> bool {
        place.best.is_none() && self.rules(place).is_some_and(|rules| rules.metric.is_some())
    }

    fn measured(&self, place: StepPosition, number: Option<Measurement>) -> WorkflowState {
        let direction = self.rules(&place).and_then(|rules| rules.metric);
        match (direction, place.best, number, place.session) {
            (Some(_), None, Some(number), _) => {
                self.continue_step(StepPosition { best: Some(number), ..place })
            }
            (_, None, _, _) | (None, ..) | (.., None) => {
                WorkflowActivity::Done(WorkflowEnd::NotMeasured).at(place)
            }
            (Some(direction), Some(best), Some(number), Some(_))
                if direction.is_better(number, best) =>
            {
                // An improvement completes the iteration: even if a limit has ended the session, it is not resumed.
                self.kept(StepPosition { best: Some(number), session: None, ..place })
            }
            (Some(_), Some(_), _, Some(session)) => WorkflowActivity::Undoing(session).at(place),
        }
    }

    fn ended(
        &self,
        place: StepPosition,
        SessionEnd { outcome, has_changed }: SessionEnd,
    ) -> WorkflowState {
        let limit = match outcome {
            SessionOutcome::Failed(code) => {
                return WorkflowActivity::Done(WorkflowEnd::SessionFailed(code)).at(place);
            }
            SessionOutcome::Limited(limit) => Some(limit),
            SessionOutcome::Answered | SessionOutcome::Partial => None,
        };
        let rules = self.rules(&place);
        let is_incomplete = outcome == SessionOutcome::Partial
            && rules.is_some_and(|rules| rules.goal == StepGoal::Answered);
        let unchanged = match (has_changed, limit) {
            (true, _) => 0,
            // The session can be resumed, and may change something then.
            (false, Some(_)) => place.unchanged,
            (false, None) if is_incomplete => place.unchanged,
            (false, None) => place.unchanged + 1,
        };
        let place = StepPosition { unchanged, limit, ..place };
        if has_changed && rules.is_some_and(|rules| rules.metric.is_some()) {
            WorkflowActivity::Measuring.at(place)
        } else if is_incomplete {
            WorkflowActivity::Done(WorkflowEnd::Incomplete).at(place)
        } else {
            self.kept(place)
        }
    }

    /// Returns the state after an iteration whose changes are kept.
    fn kept(&self, place: StepPosition) -> WorkflowState {
        let is_last = place.iteration >= self.max_iterations(&place);
        match self.rules(&place).map(|rules| rules.goal) {
            Some(StepGoal::Tested) => WorkflowActivity::Testing.at(place),
            // A session that was ended by a limit is resumed before its tests run.
            Some(StepGoal::EachTested) if place.limit.is_none() => {
                WorkflowActivity::Testing.at(place)
            }
            Some(StepGoal::Answered) if is_last && place.limit.is_none() => {
                self.enter_next_step(place)
            }
            Some(StepGoal::Answered | StepGoal::EachTested | StepGoal::Unbounded) | None => {
                self.continue_step(place)
            }
        }
    }

    /// Returns the state after an iteration that has not reached the goal.
    fn continue_step(&self, place: StepPosition) -> WorkflowState {
        let max_unchanged = self.rules(&place).and_then(|rules| rules.max_unchanged);
        if let Some(limit) = place.limit {
            return WorkflowActivity::Done(WorkflowEnd::LimitReached(limit)).at(place);
        }
        let place = StepPosition { session: None, ..place };
        if max_unchanged.is_some_and(|most| place.unchanged >= most) {
            WorkflowActivity::Done(WorkflowEnd::NothingChanged).at(place)
        } else if place.iteration >= self.max_iterations(&place) {
            WorkflowActivity::Done(WorkflowEnd::IterationsUsed).at(place)
        } else {
            WorkflowActivity::Starting.at(place)
        }
    }

    fn enter_next_step(&self, place: StepPosition) -> WorkflowState {
        match self.steps.len() > place.step + 1 {
            true => WorkflowActivity::Deciding
                .at(StepPosition { step: place.step + 1, ..StepPosition::default() }),
            // The position stays at the last step, which may be decided again.
            false => WorkflowActivity::Done(WorkflowEnd::Succeeded).at(StepPosition {
                session: None,
                limit: None,
                ..place
            }),
        }
    }

    /// Returns the state in which an ended workflow continues.
    fn again(&self, place: StepPosition, end: WorkflowEnd) -> WorkflowState {
        match (end, place.session) {
            (WorkflowEnd::Succeeded, _) => match self.rules(&place) {
                Some(rules) if rules.is_rechecked => WorkflowActivity::Deciding.at(place),
                Some(_) | None => WorkflowActivity::Done(end).at(place),
            },
            (WorkflowEnd::SessionFailed(_), Some(session)) => {
                WorkflowActivity::Running(session).at(place)
            }
            // The user may have fixed the failures.
            (WorkflowEnd::ItemFailed, _) => WorkflowActivity::Testing.at(place),
            (_, Some(_)) => WorkflowActivity::Deciding.at(StepPosition { limit: None, ..place }),
            // The user may have changed files since: the number is measured again, and unsuccessful attempts may be
            // repeated.
            (_, None) => WorkflowActivity::Deciding.at(StepPosition {
                limit: None,
                best: None,
                unchanged: 0,
                ..place
            }),
        }
    }
}

impl WorkflowActivity {
    /// Returns the state with this activity at a position.
    pub fn at(self, place: StepPosition) -> WorkflowState {
        WorkflowState { place, activity: self }
    }
}

impl MetricDirection {
    /// Returns whether a number is better than another.
    pub fn is_better(self, number: Measurement, than: Measurement) -> bool {
        match self {
            Self::Maximize => number > than,
            Self::Minimize => number < than,
        }
    }
}

impl Measurement {
    /// Returns a measurement; `None` if the number is NaN or infinite.
    pub fn new(number: f64) -> Option<Self> {
        // Adding zero turns -0.0 into 0.0.
        number.is_finite().then_some(Self(number + 0.0))
    }

    /// Returns the number.
    pub fn number(self) -> f64 {
        self.0
    }
}

impl PartialEq for Measurement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Measurement {}

impl PartialOrd for Measurement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Measurement {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl std::hash::Hash for Measurement {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}
