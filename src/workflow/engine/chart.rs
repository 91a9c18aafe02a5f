//! The guards of the chart of a workflow: each name is a function of a program, a state and an event.

use super::machine::{
    Direction, End, Goal, Program, SessionEnd, SessionOutcome, StepEvent, StepPosition, StepRules,
    WorkflowState,
};
use crate::model::word_enum;

/// The text of the statechart of a workflow: an XState v5 configuration.
pub const WORKFLOW_CHART_JSON: &str = include_str!("../../../statecharts/workflow.json");

word_enum! {
    /// A condition on a transition of the chart.
    pub enum WorkflowGuard {
        /// The step is done or skipped, and there is another one.
        EntersNextStep = "entersNextStep",
        /// The step is done or skipped.
        IsReached = "isReached",
        /// There is a session that can be resumed.
        ResumesSession = "resumesSession",
        /// A number has to be measured before the first iteration.
        MeasuresFirst = "measuresFirst",
        /// The bounds of the step allow another iteration.
        MayIterate = "mayIterate",
        /// The session failed.
        IsFailed = "isFailed",
        /// The iteration has changed files, and has to improve a number.
        IsMeasured = "isMeasured",
        /// The iteration stays, and tests decide whether the step is done.
        IsTested = "isTested",
        /// The iteration has not improved the number.
        IsWorse = "isWorse",
        /// What has ended the workflow may not hold any more.
        DecidesAgain = "decidesAgain",
    }
}

impl WorkflowGuard {
    /// Returns whether the condition holds for an event in a state.
    pub fn holds(self, program: &Program, state: &WorkflowState, event: &StepEvent) -> bool {
        let place = state.place();
        let Some(rules) = program.rules(place) else { return false };
        let number = IterationFacts::new(rules, state, event);
        match self {
            Self::EntersNextStep => {
                is_reached(program, rules, state, event) && place.step + 1 < program.steps.len()
            }
            Self::IsReached => is_reached(program, rules, state, event),
            Self::ResumesSession => match state {
                WorkflowState::Done(_, End::SessionFailed(_)) => place.session.is_some(),
                WorkflowState::Done(..) => false,
                _ => place.session.is_some(),
            },
            Self::MeasuresFirst => rules.metric.is_some() && place.best.is_none(),
            Self::MayIterate => {
                number.is_valid
                    && number.limit_is_clear
                    && rules.max_unchanged.is_none_or(|most| number.unchanged < most)
                    && place.iteration < program.max_iterations(place)
            }
            Self::IsFailed => matches!(outcome(event), Some(SessionOutcome::Failed(_))),
            Self::IsMeasured => {
                rules.metric.is_some()
                    && matches!(event, StepEvent::Ended(SessionEnd { has_changed: true, .. }))
            }
            Self::IsTested => match state {
                WorkflowState::Measuring(place) => {
                    rules.goal == Goal::Tested && place.best.is_some()
                }
                _ => rules.goal == Goal::Tested,
            },
            Self::IsWorse => place.best.is_some() && !improves(rules, place, event),
            Self::DecidesAgain => match state {
                WorkflowState::Done(_, End::Succeeded) => rules.is_rechecked,
                _ => true,
            },
        }
    }
}

/// What the bounds of a step look at.
struct IterationFacts {
    unchanged: u32,
    limit_is_clear: bool,
    /// Whether the event lets the step continue at all.
    is_valid: bool,
}

impl IterationFacts {
    fn new(rules: &StepRules, state: &WorkflowState, event: &StepEvent) -> Self {
        let place = state.place();
        let usual = |is_valid| Self {
            unchanged: place.unchanged,
            limit_is_clear: place.limit.is_none(),
            is_valid,
        };
        match event {
            StepEvent::Ended(SessionEnd { outcome, has_changed }) => Self {
                unchanged: if *has_changed { 0 } else { place.unchanged + 1 },
                limit_is_clear: !matches!(outcome, SessionOutcome::Limited(_)),
                is_valid: rules.goal != Goal::Answered || *outcome != SessionOutcome::Partial,
            },
            StepEvent::Measured(number) => {
                usual(number.is_some() || place.best.is_some() && place.session.is_some())
            }
            StepEvent::Decided { .. }
            | StepEvent::Begun(_)
            | StepEvent::Undone
            | StepEvent::Tested { .. }
            | StepEvent::Limited(_)
            | StepEvent::Continued { .. } => usual(true),
        }
    }
}

fn outcome(event: &StepEvent) -> Option<SessionOutcome> {
    match event {
        StepEvent::Ended(end) => Some(end.outcome),
        _ => None,
    }
}

/// Returns whether nothing is left to do in the step.
fn is_reached(
    program: &Program,
    rules: &StepRules,
    state: &WorkflowState,
    event: &StepEvent,
) -> bool {
    let place = state.place();
    let is_last = place.iteration >= program.max_iterations(place);
    match event {
        StepEvent::Decided { is_needed } => !is_needed,
        StepEvent::Tested { is_passed } => *is_passed,
        StepEvent::Ended(end) => {
            rules.goal == Goal::Answered && is_last && end.outcome == SessionOutcome::Answered
        }
        // The session has answered before it was measured, or a limit has ended it.
        StepEvent::Measured(_) => {
            rules.goal == Goal::Answered
                && is_last
                && place.limit.is_none()
                && improves(rules, place, event)
        }
        StepEvent::Begun(_)
        | StepEvent::Undone
        | StepEvent::Limited(_)
        | StepEvent::Continued { .. } => false,
    }
}

fn improves(rules: &StepRules, place: &StepPosition, event: &StepEvent) -> bool {
    match (event, rules.metric, place.best) {
        (StepEvent::Measured(Some(number)), Some(Direction::Maximize), Some(best)) => {
            *number > best
        }
        (StepEvent::Measured(Some(number)), Some(Direction::Minimize), Some(best)) => {
            *number < best
        }
        _ => false,
    }
}
