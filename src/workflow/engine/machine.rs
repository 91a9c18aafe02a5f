//! The machine of a workflow: steps, each with iterations, each of them one session.
//!
//! [`step`] turns a state and an event into the next state, and [`State::command`] names what has to happen in a state.
//! So a state that was restored from the journal continues by its command. Pure: no clock, no I/O; prompts, outputs and
//! commands of the user are not in it. The specification is `statecharts/workflow.json`.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::journal::SessionId;
use crate::model::word_enum;

/// What a workflow consists of: its steps, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Program {
    /// The steps.
    pub steps: Vec<StepRules>,
}

/// What the machine knows of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepRules {
    /// When the step is done.
    pub goal: Goal,
    /// Whether each iteration has to improve a number. One that does not is undone.
    pub metric: Option<Direction>,
    /// The maximum number of iterations.
    pub iterations: u32,
    /// The number of iterations in a row without any change after which the step ends.
    pub max_unchanged: Option<u32>,
    /// Whether a step that is done is decided again when the command is given again.
    pub is_rechecked: bool,
}

/// When a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// When all its iterations have answered.
    Answered,
    /// When its tests pass after an iteration.
    Tested,
    /// Never: its bounds end it.
    Unbounded,
}

/// What is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A larger number.
    Maximize,
    /// A smaller number.
    Minimize,
}

/// A measured number, never NaN.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measurement(f64);

/// Where a workflow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The index of the step.
    pub step: usize,
    /// The iterations of the step that have begun.
    pub iteration: u32,
    /// The maximum number of iterations, where the command has changed it.
    pub iterations: Option<u32>,
    /// The iterations in a row that have changed nothing.
    pub unchanged: u32,
    /// The best measured number of the step.
    pub best: Option<Measurement>,
    /// The session of the iteration that is not complete.
    pub session: Option<SessionId>,
    /// The limit that has ended the session of this iteration.
    pub limit: Option<Limit>,
}

/// The state of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It is decided whether the step has anything to do.
    Deciding(Place),
    /// The number is measured.
    Measuring(Place),
    /// A session is about to begin.
    Starting(Place),
    /// The session of an iteration runs.
    Running(Place, SessionId),
    /// The changes of an iteration are undone.
    Undoing(Place, SessionId),
    /// The tests of the step run.
    Testing(Place),
    /// The workflow is over, until the command is given again.
    Done(Place, End),
}

word_enum! {
    /// The kinds of states, with their names in the chart.
    pub enum StateKind {
        /// [`State::Deciding`].
        Deciding = "Deciding",
        /// [`State::Measuring`].
        Measuring = "Measuring",
        /// [`State::Starting`].
        Starting = "Starting",
        /// [`State::Running`].
        Running = "Running",
        /// [`State::Undoing`].
        Undoing = "Undoing",
        /// [`State::Testing`].
        Testing = "Testing",
        /// [`State::Done`].
        Done = "Done",
    }
}

word_enum! {
    /// A limit of the whole workflow.
    pub enum Limit {
        /// Money or tokens.
        Budget = "budget",
        /// Time.
        Time = "time",
    }
}

/// How a workflow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Every step is done.
    Succeeded,
    /// A step has used all its iterations without reaching its goal.
    IterationsUsed,
    /// Several iterations in a row changed nothing.
    NothingChanged,
    /// The run of an iteration ended early, and its step has no tests that decide. It can be resumed.
    Incomplete,
    /// A limit of the whole workflow was reached.
    LimitReached(Limit),
    /// A session failed, with this exit code.
    SessionFailed(u8),
    /// The number could not be measured before the first iteration.
    NotMeasured,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Whether the step has anything to do.
    Decided {
        /// False if its condition does not hold, or its goal is reached already.
        is_needed: bool,
    },
    /// The number was measured; `None` if there is none.
    Measured(Option<Measurement>),
    /// An iteration begins, with this session.
    Begun(SessionId),
    /// The session of the iteration ended.
    Ended(SessionEnd),
    /// The changes of the iteration are undone.
    Undone,
    /// Whether the tests of the step passed.
    Tested {
        /// Whether all of them did.
        is_passed: bool,
    },
    /// A limit of the whole workflow covers no further session.
    Limited(Limit),
    /// The command was given again, with this maximum number of iterations.
    Continued {
        /// The maximum; `None` if it is that of the program.
        iterations: Option<u32>,
    },
}

word_enum! {
    /// The kinds of events, with their names in the chart.
    pub enum EventKind {
        /// [`Event::Decided`].
        Decided = "DECIDED",
        /// [`Event::Measured`].
        Measured = "MEASURED",
        /// [`Event::Begun`].
        Begun = "BEGUN",
        /// [`Event::Ended`].
        Ended = "ENDED",
        /// [`Event::Undone`].
        Undone = "UNDONE",
        /// [`Event::Tested`].
        Tested = "TESTED",
        /// [`Event::Limited`].
        Limited = "LIMITED",
        /// [`Event::Continued`].
        Continued = "CONTINUED",
    }
}

/// How the session of an iteration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionEnd {
    /// How its run ended.
    pub outcome: SessionOutcome,
    /// Whether it has changed files, as far as that is known.
    pub has_changed: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionOutcome {
    /// With success.
    Answered,
    /// Early, by a limit of its own.
    Partial,
    /// By a limit of the whole workflow. It can be resumed when the limit is raised.
    Limited(Limit),
    /// It failed, with this exit code. It can be resumed.
    Failed(u8),
}

/// What has to happen in a state. Its completion is the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Decide whether the step has anything to do.
    Decide,
    /// Measure the number.
    Measure,
    /// Begin a session, unless a limit is reached.
    Begin,
    /// Run this session to its end: begin it if it doesn't exist, and else resume it.
    Run(SessionId),
    /// Undo what this session has changed.
    Undo(SessionId),
    /// Run the tests.
    Test,
    /// Report the end.
    Finish(End),
}

/// Returns the state after an event. An event that a state doesn't await changes nothing.
pub fn step(program: &Program, state: State, event: Event) -> State {
    match event {
        Event::Decided { is_needed } => match state {
            State::Deciding(place) => program.decided(place, is_needed),
            state => state,
        },
        Event::Measured(number) => match state {
            State::Measuring(place) => program.measured(place, number),
            state => state,
        },
        Event::Begun(session) => match state {
            State::Starting(place) => {
                let iteration = place.iteration + 1;
                let place = Place { iteration, session: Some(session), limit: None, ..place };
                State::Running(place, session)
            }
            state => state,
        },
        Event::Ended(end) => match state {
            State::Running(place, _) => program.ended(place, end),
            state => state,
        },
        Event::Undone => match state {
            State::Undoing(place, _) => program.continue_step(Place { session: None, ..place }),
            state => state,
        },
        Event::Tested { is_passed } => match state {
            State::Testing(place) if is_passed => program.enter_next_step(place),
            State::Testing(place) => program.continue_step(place),
            state => state,
        },
        Event::Limited(limit) => match state {
            State::Starting(place) => State::Done(place, End::LimitReached(limit)),
            state => state,
        },
        Event::Continued { iterations } => {
            state.with_iterations(iterations).map_done(|place, end| program.again(place, end))
        }
    }
}

impl Program {
    /// Returns the state before the first event.
    pub fn start(&self) -> State {
        State::Deciding(Place::default())
    }

    /// Returns the rules of the step at a place.
    pub fn rules(&self, place: &Place) -> Option<&StepRules> {
        self.steps.get(place.step)
    }

    /// Returns the maximum number of iterations at a place.
    pub fn max_iterations(&self, place: &Place) -> u32 {
        let usual = self.rules(place).map_or(0, |rules| rules.iterations);
        place.iterations.unwrap_or(usual)
    }

    fn decided(&self, place: Place, is_needed: bool) -> State {
        if !is_needed {
            return self.enter_next_step(place);
        }
        match place.session {
            // A limit that is raised now has ended its session.
            Some(session) => State::Running(Place { limit: None, ..place }, session),
            None if self.is_unmeasured(&place) => State::Measuring(place),
            None => self.continue_step(place),
        }
    }

    /// Returns whether the number is to be measured before the first iteration.
    fn is_unmeasured(&self, place: &Place) -> bool {
        place.best.is_none() && self.rules(place).is_some_and(|rules| rules.metric.is_some())
    }

    fn measured(&self, place: Place, number: Option<Measurement>) -> State {
        let direction = self.rules(&place).and_then(|rules| rules.metric);
        match (direction, place.best, number, place.session) {
            (Some(_), None, Some(number), _) => {
                self.continue_step(Place { best: Some(number), ..place })
            }
            (_, None, _, _) | (None, ..) | (.., None) => State::Done(place, End::NotMeasured),
            (Some(direction), Some(best), Some(number), Some(_))
                if direction.is_better(number, best) =>
            {
                // What is kept is complete: a session that a limit has cut off is not resumed.
                self.kept(Place { best: Some(number), session: None, ..place })
            }
            (Some(_), Some(_), _, Some(session)) => State::Undoing(place, session),
        }
    }

    fn ended(&self, place: Place, SessionEnd { outcome, has_changed }: SessionEnd) -> State {
        let limit = match outcome {
            SessionOutcome::Failed(code) => return State::Done(place, End::SessionFailed(code)),
            SessionOutcome::Limited(limit) => Some(limit),
            SessionOutcome::Answered | SessionOutcome::Partial => None,
        };
        let rules = self.rules(&place);
        let is_incomplete = outcome == SessionOutcome::Partial
            && rules.is_some_and(|rules| rules.goal == Goal::Answered);
        let unchanged = match (has_changed, limit) {
            (true, _) => 0,
            // It can be resumed, and change something then.
            (false, Some(_)) => place.unchanged,
            (false, None) if is_incomplete => place.unchanged,
            (false, None) => place.unchanged + 1,
        };
        let place = Place { unchanged, limit, ..place };
        if has_changed && rules.is_some_and(|rules| rules.metric.is_some()) {
            State::Measuring(place)
        } else if is_incomplete {
            State::Done(place, End::Incomplete)
        } else {
            self.kept(place)
        }
    }

    /// Returns the state after an iteration whose changes stay.
    fn kept(&self, place: Place) -> State {
        let is_last = place.iteration >= self.max_iterations(&place);
        match self.rules(&place).map(|rules| rules.goal) {
            Some(Goal::Tested) => State::Testing(place),
            Some(Goal::Answered) if is_last && place.limit.is_none() => self.enter_next_step(place),
            Some(Goal::Answered | Goal::Unbounded) | None => self.continue_step(place),
        }
    }

    /// Returns the state after an iteration that has not reached the goal.
    fn continue_step(&self, place: Place) -> State {
        let max_unchanged = self.rules(&place).and_then(|rules| rules.max_unchanged);
        if let Some(limit) = place.limit {
            return State::Done(place, End::LimitReached(limit));
        }
        let place = Place { session: None, ..place };
        if max_unchanged.is_some_and(|most| place.unchanged >= most) {
            State::Done(place, End::NothingChanged)
        } else if place.iteration >= self.max_iterations(&place) {
            State::Done(place, End::IterationsUsed)
        } else {
            State::Starting(place)
        }
    }

    fn enter_next_step(&self, place: Place) -> State {
        match self.steps.len() > place.step + 1 {
            true => State::Deciding(Place { step: place.step + 1, ..Place::default() }),
            // The last step may be decided again.
            false => State::Done(Place { session: None, limit: None, ..place }, End::Succeeded),
        }
    }

    /// Returns the state in which an ended workflow continues.
    fn again(&self, place: Place, end: End) -> State {
        match (end, place.session) {
            (End::Succeeded, _) => match self.rules(&place) {
                Some(rules) if rules.is_rechecked => State::Deciding(place),
                Some(_) | None => State::Done(place, end),
            },
            (End::SessionFailed(_), Some(session)) => State::Running(place, session),
            _ => State::Deciding(Place { limit: None, ..place }),
        }
    }
}

impl State {
    /// Returns what has to happen.
    pub fn command(&self) -> Command {
        match self {
            Self::Deciding(_) => Command::Decide,
            Self::Measuring(_) => Command::Measure,
            Self::Starting(_) => Command::Begin,
            Self::Running(_, session) => Command::Run(*session),
            Self::Undoing(_, session) => Command::Undo(*session),
            Self::Testing(_) => Command::Test,
            Self::Done(_, end) => Command::Finish(*end),
        }
    }

    /// Returns the kind.
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Deciding(_) => StateKind::Deciding,
            Self::Measuring(_) => StateKind::Measuring,
            Self::Starting(_) => StateKind::Starting,
            Self::Running(..) => StateKind::Running,
            Self::Undoing(..) => StateKind::Undoing,
            Self::Testing(_) => StateKind::Testing,
            Self::Done(..) => StateKind::Done,
        }
    }

    /// Returns where the workflow is.
    pub fn place(&self) -> &Place {
        match self {
            Self::Deciding(place)
            | Self::Measuring(place)
            | Self::Starting(place)
            | Self::Running(place, _)
            | Self::Undoing(place, _)
            | Self::Testing(place)
            | Self::Done(place, _) => place,
        }
    }

    fn with_iterations(mut self, iterations: Option<u32>) -> Self {
        match &mut self {
            Self::Deciding(place)
            | Self::Measuring(place)
            | Self::Starting(place)
            | Self::Running(place, _)
            | Self::Undoing(place, _)
            | Self::Testing(place)
            | Self::Done(place, _) => place.iterations = iterations.or(place.iterations),
        }
        self
    }

    fn map_done(self, continue_with: impl FnOnce(Place, End) -> Self) -> Self {
        match self {
            Self::Done(place, end) => continue_with(place, end),
            Self::Deciding(_)
            | Self::Measuring(_)
            | Self::Starting(_)
            | Self::Running(..)
            | Self::Undoing(..)
            | Self::Testing(_) => self,
        }
    }
}

impl Event {
    /// Returns the kind.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Decided { .. } => EventKind::Decided,
            Self::Measured(_) => EventKind::Measured,
            Self::Begun(_) => EventKind::Begun,
            Self::Ended(_) => EventKind::Ended,
            Self::Undone => EventKind::Undone,
            Self::Tested { .. } => EventKind::Tested,
            Self::Limited(_) => EventKind::Limited,
            Self::Continued { .. } => EventKind::Continued,
        }
    }
}

impl Direction {
    /// Returns whether a number is better than another one.
    pub fn is_better(self, number: Measurement, than: Measurement) -> bool {
        match self {
            Self::Maximize => number > than,
            Self::Minimize => number < than,
        }
    }
}

impl Measurement {
    /// Returns the measured number; `None` if it is NaN or infinite.
    pub fn new(number: f64) -> Option<Self> {
        // There is one zero.
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
