//! The cost of one step of the machine.
//!
//! A turn with one tool is four steps (prepared, replied, authorized, completed). The state is passed from one to the next
//! as in the driver. Only the transition is measured, without the conversation.

use std::hint::black_box;

use architect::machine::{Event, step};
use criterion::{Criterion, criterion_group, criterion_main};
use subject::{TurnEvents, fresh_state};

#[path = "subjects/step.rs"]
mod subject;

fn steps(c: &mut Criterion) {
    let turn = TurnEvents::new();
    c.bench_function("a turn of four steps", |b| {
        let mut state = Some(fresh_state());
        b.iter(|| {
            let before = state.take().unwrap_or_else(fresh_state);
            state = Some(black_box(turn.advance(before)));
        });
    });
    c.bench_function("a tick that finds nothing due", |b| {
        let mut state = Some(fresh_state());
        b.iter(|| {
            let (before, id) = state.take().unwrap_or_else(fresh_state);
            let now = before.run().now;
            state = Some((black_box(step(before, Event::Tick { now }).state), id));
        });
    });
}

criterion_group!(benches, steps);
criterion_main!(benches);
