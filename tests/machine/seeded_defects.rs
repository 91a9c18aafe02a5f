//! Can the explorer find defects? Six are put into the transition function, and it must find each.

use architect::machine::{
    CallAttempt, CallPurpose, CallingStage, ConversationChange, DeadlineKind, Effect, Event,
    EventKind, State, StateKind, Step, deadline, step,
};
use architect::types::ConversationItem;

use crate::explorer::assert_found;
use crate::small_model;

/// The number of explored states of each small model.
const STATES: usize = 20_000;

#[test]
fn a_lost_result_is_found() {
    fn lossy(state: State, event: Event) -> Step {
        let mut next = step(state, event);
        if next.state.kind() == StateKind::ClosingPreparing {
            next.changes.retain(|change| {
                !matches!(
                    change,
                    ConversationChange::Append { item: ConversationItem::Exchange(_) }
                )
            });
        }
        next
    }
    assert_found(lossy, STATES, &["no call loses its answer: Executing"]);
}

#[test]
fn an_interrupt_that_only_one_state_handles_is_found() {
    fn deaf(state: State, event: Event) -> Step {
        match (&event, state.kind()) {
            (Event::Interrupt { .. }, kind) if kind != StateKind::CallingSending => {
                let next = step(state.clone(), Event::Tick { now: architect::types::RunTime(0) });
                Step { state, ..next }
            }
            _ => step(state, event),
        }
    }
    let names =
        ["Preparing", "Executing", "Calling.Waiting", "Closing.Sending", "Compacting.Sending"].map(
            |state| format!("an interrupt ends the run, and nothing starts after it: {state} on"),
        );
    assert_found(deaf, STATES, &names.each_ref().map(String::as_str));
}

#[test]
fn a_retry_that_ignores_the_budget_is_found() {
    fn wasteful(state: State, event: Event) -> Step {
        let due = deadline(&state).map(|deadline| deadline.kind);
        let next = step(state.clone(), event);
        match state {
            State::Calling(mut calling)
                if due == Some(DeadlineKind::RetryDue)
                    && next.state.kind() == StateKind::ClosingPreparing =>
            {
                let CallingStage::Requesting(attempt) = calling.stage else { unreachable!() };
                let id = calling.run.next_effect.allocate();
                let (CallAttempt::Sending { number, .. } | CallAttempt::Waiting { number, .. }) =
                    attempt;
                calling.stage = CallingStage::Requesting(CallAttempt::Sending {
                    id,
                    number,
                    due: next.state.run().now,
                });
                let call = Effect::CallModel {
                    id,
                    purpose: CallPurpose::Agent,
                    attempt: number,
                    max_output: None,
                };
                Step {
                    state: State::Calling(calling),
                    changes: vec![],
                    effects: vec![call],
                    notes: vec![],
                }
            }
            _ => next,
        }
    }
    let name = "no call is made that the budget does not cover: Calling.Waiting on TICK";
    assert_found(wasteful, STATES, &[name]);
}

#[test]
fn a_tool_that_runs_twice_is_found() {
    fn eager(state: State, event: Event) -> Step {
        let settles = matches!(event, Event::ToolCompleted { .. });
        let mut next = step(state, event);
        if let (true, State::Executing(executing)) = (settles, &mut next.state) {
            let id = executing.run.next_effect.allocate();
            let call = executing.calls[0].call.clone();
            next.effects.push(Effect::RunTool { id, call, budget: None, command: None });
        }
        next
    }
    assert_found(eager, STATES, &["a tool runs once, and only when approved"]);
}

/// The defects forget the commands in the deciding step alone: a state without them has nothing to wait for.
#[test]
fn an_answer_that_does_not_wait_is_found() {
    fn forget_on(kind: EventKind, mut state: State, event: Event) -> Step {
        if event.kind() == kind {
            let commands = &mut small_model::run_mut(&mut state).commands;
            commands.iter_mut().for_each(|command| command.is_needed = false);
        }
        step(state, event)
    }
    fn unchecked(state: State, event: Event) -> Step {
        forget_on(EventKind::Replied, state, event)
    }
    fn passed(state: State, event: Event) -> Step {
        forget_on(EventKind::Checked, state, event)
    }
    let name = "an answer waits for the commands that are needed";
    assert_found(unchecked, STATES, &[&format!("{name}: Calling.Sending on REPLIED -> Done")]);
    assert_found(passed, STATES, &[&format!("{name}: Calling.Checking on CHECKED -> Done")]);
}

#[test]
fn a_command_that_outlives_its_run_is_found() {
    fn careless(state: State, event: Event) -> Step {
        let commands: Vec<_> = state.run().commands.iter().map(|command| command.id).collect();
        let mut next = step(state, event);
        next.effects
            .retain(|effect| !matches!(effect, Effect::Cancel { id } if commands.contains(id)));
        next
    }
    let names = ["Preparing", "Calling.Sending", "Executing", "Closing.Preparing"]
        .map(|state| format!("each effect completes exactly once: {state} on INTERRUPT -> Done"));
    assert_found(careless, STATES, &names.each_ref().map(String::as_str));
}
