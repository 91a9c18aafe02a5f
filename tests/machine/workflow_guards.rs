//! The guards of the chart of a workflow: each name is a function of a program, a state and an event.

use architect::workflow::engine::machine::{
    MetricDirection, Program, SessionEnd, SessionOutcome, StepEvent, StepGoal, StepNeed,
    StepPosition, StepRules, WorkflowActivity, WorkflowEnd, WorkflowState,
};

/// The names of the guards.
pub(crate) const GUARDS: [&str; 13] = [
    "entersNextStep",
    "isReached",
    "resumesSession",
    "measuresFirst",
    "mayIterate",
    "hasTooManyItems",
    "isItemFailed",
    "testsAgain",
    "isFailed",
    "isMeasured",
    "isTested",
    "isWorse",
    "decidesAgain",
];

/// Returns whether a guard holds for an event in a state.
pub(crate) fn holds(
    guard: &str,
    program: &Program,
    state: &WorkflowState,
    event: &StepEvent,
) -> bool {
    let place = &state.place;
    let Some(rules) = program.rules(place) else { return false };
    let number = IterationFacts::new(rules, state, event);
    match guard {
        // The step is done or skipped, and there is another one.
        "entersNextStep" => {
            is_reached(program, rules, state, event) && place.step + 1 < program.steps.len()
        }
        // The step is done or skipped.
        "isReached" => is_reached(program, rules, state, event),
        // There is a session that can be resumed.
        "resumesSession" => {
            let is_over = matches!(state.activity, WorkflowActivity::Done(end) if !matches!(end, WorkflowEnd::SessionFailed(_)));
            place.session.is_some() && !is_over
        }
        // A number has to be measured before the first iteration.
        "measuresFirst" => rules.metric.is_some() && place.best.is_none(),
        // The bounds of the step allow another iteration.
        "mayIterate" => {
            number.is_valid
                && number.limit_is_clear
                && rules.max_unchanged.is_none_or(|most| number.unchanged < most)
                && place.iteration < number.most.unwrap_or(program.max_iterations(place))
        }
        // The step has more items than it may have.
        "hasTooManyItems" => items(event).is_some_and(|count| count > program.most_items(place)),
        // The tests failed, and each iteration has to pass them.
        "isItemFailed" => {
            rules.goal == StepGoal::EachTested
                && matches!(event, StepEvent::Tested { is_passed: false })
        }
        // The tests of an iteration failed, and may pass now.
        "testsAgain" => state.activity == WorkflowActivity::Done(WorkflowEnd::ItemFailed),
        // The session failed.
        "isFailed" => matches!(outcome(event), Some(SessionOutcome::Failed(_))),
        // The iteration has changed files, and has to improve a number.
        "isMeasured" => {
            rules.metric.is_some()
                && matches!(event, StepEvent::Ended(SessionEnd { has_changed: true, .. }))
        }
        // The iteration stays, and tests decide whether the step is done.
        "isTested" => {
            let is_first = state.activity == WorkflowActivity::Measuring && place.best.is_none();
            match rules.goal {
                StepGoal::Tested => !is_first,
                StepGoal::EachTested => !is_first && number.limit_is_clear,
                StepGoal::Answered | StepGoal::Unbounded => false,
            }
        }
        // The iteration has not improved the number.
        "isWorse" => place.best.is_some() && !improves(rules, place, event),
        // The reason for the end of the workflow may no longer hold.
        "decidesAgain" => {
            state.activity != WorkflowActivity::Done(WorkflowEnd::Succeeded) || rules.is_rechecked
        }
        _ => panic!("unknown guard {guard}"),
    }
}

/// The facts on which the bounds of a step depend.
struct IterationFacts {
    unchanged: u32,
    limit_is_clear: bool,
    /// The number of items, where the event counts them.
    most: Option<u32>,
    /// Whether the event lets the step continue at all.
    is_valid: bool,
}

impl IterationFacts {
    fn new(rules: &StepRules, state: &WorkflowState, event: &StepEvent) -> Self {
        let place = &state.place;
        let usual = |is_valid| Self {
            unchanged: place.unchanged,
            limit_is_clear: place.limit.is_none(),
            most: items(event),
            is_valid,
        };
        match event {
            StepEvent::Ended(SessionEnd { outcome, has_changed }) => Self {
                unchanged: if *has_changed { 0 } else { place.unchanged + 1 },
                limit_is_clear: !matches!(outcome, SessionOutcome::Limited(_)),
                most: None,
                is_valid: rules.goal != StepGoal::Answered || *outcome != SessionOutcome::Partial,
            },
            StepEvent::Measured(number) => {
                usual(number.is_some() || place.best.is_some() && place.session.is_some())
            }
            StepEvent::Decided(_)
            | StepEvent::Begun(_)
            | StepEvent::Undone
            | StepEvent::Tested { .. }
            | StepEvent::Limited(_)
            | StepEvent::Continued { .. } => usual(true),
        }
    }
}

fn items(event: &StepEvent) -> Option<u32> {
    match event {
        StepEvent::Decided(StepNeed::Items(count)) => Some(*count),
        _ => None,
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
    let place = &state.place;
    let is_last = place.iteration >= program.max_iterations(place);
    match event {
        StepEvent::Decided(need) => matches!(need, StepNeed::Nothing | StepNeed::Items(0)),
        StepEvent::Tested { is_passed } => {
            *is_passed && (rules.goal != StepGoal::EachTested || is_last)
        }
        StepEvent::Ended(end) => {
            rules.goal == StepGoal::Answered && is_last && end.outcome == SessionOutcome::Answered
        }
        // The session has answered before it was measured, or a limit has ended it.
        StepEvent::Measured(_) => {
            rules.goal == StepGoal::Answered
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
        (StepEvent::Measured(Some(number)), Some(MetricDirection::Maximize), Some(best)) => {
            *number > best
        }
        (StepEvent::Measured(Some(number)), Some(MetricDirection::Minimize), Some(best)) => {
            *number < best
        }
        _ => false,
    }
}
