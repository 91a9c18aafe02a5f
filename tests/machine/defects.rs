//! Is the explorer blind? Four defects are put into the transition function, and it has to find each.

use architect::machine::{
    Attempt, CallStage, Change, Effect, Event, Next, Purpose, State, StateKind, Why, deadline, step,
};
use architect::model::Item;

use crate::alphabet;
use crate::explorer::{Step, explore};

/// Returns the invariants that a defective function breaks.
fn found(step: Step) -> Vec<String> {
    let mut found = Vec::new();
    for world in alphabet::worlds() {
        found.extend(explore(&world, step, 20_000, |_, _, _| {}).violations);
    }
    found
}

#[test]
fn a_result_that_is_lost_at_close_is_found() {
    fn lossy(state: State, event: Event) -> Next {
        let mut next = step(state, event);
        if next.state.kind() == StateKind::ClosingPreparing {
            next.changes
                .retain(|change| !matches!(change, Change::Append { item: Item::Exchange(_) }));
        }
        next
    }
    assert!(
        found(lossy).iter().any(|found| found.starts_with("no call loses its answer: Executing"))
    );
}

#[test]
fn an_interrupt_that_only_one_state_hears_is_found() {
    fn deaf(state: State, event: Event) -> Next {
        match (&event, state.kind()) {
            (Event::Interrupt { .. }, kind) if kind != StateKind::CallingSending => {
                let next = step(state.clone(), Event::Tick { now: architect::model::Time(0) });
                Next { state, ..next }
            }
            _ => step(state, event),
        }
    }
    let found = found(deaf);
    for state in
        ["Preparing", "Executing", "Calling.Waiting", "Closing.Sending", "Compacting.Sending"]
    {
        let name = format!("an interrupt ends the run, and nothing starts after it: {state} on");
        assert!(found.iter().any(|found| found.starts_with(&name)), "{state}");
    }
}

#[test]
fn a_retry_that_ignores_the_budget_is_found() {
    fn wasteful(state: State, event: Event) -> Next {
        let due = deadline(&state).map(|deadline| deadline.why);
        let next = step(state.clone(), event);
        match state {
            State::Calling(mut calling)
                if due == Some(Why::RetryDue)
                    && next.state.kind() == StateKind::ClosingPreparing =>
            {
                let CallStage::Asking(attempt) = calling.stage else { unreachable!() };
                let id = calling.run.next.take();
                let (Attempt::Sending { number, .. } | Attempt::Waiting { number, .. }) = attempt;
                calling.stage =
                    CallStage::Asking(Attempt::Sending { id, number, due: next.state.run().now });
                let call =
                    Effect::Call { id, purpose: Purpose::Agent, attempt: number, max_output: None };
                Next {
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
    assert!(found(wasteful).iter().any(|found| found.starts_with(name)));
}

#[test]
fn a_tool_that_runs_twice_is_found() {
    fn eager(state: State, event: Event) -> Next {
        let settles = matches!(event, Event::Settled { .. });
        let mut next = step(state, event);
        if let (true, State::Executing(executing)) = (settles, &mut next.state) {
            let id = executing.run.next.take();
            let call = executing.calls[0].call.clone();
            next.effects.push(Effect::Run { id, call, allowance: None });
        }
        next
    }
    assert!(
        found(eager)
            .iter()
            .any(|found| found.starts_with("a tool runs once, and only when cleared"))
    );
}

#[test]
fn the_machine_itself_has_none_of_them() {
    assert_eq!(found(step), Vec::<String>::new());
}
