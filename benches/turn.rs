//! The time of a turn: one model call that asks for two tools, and their results.
//!
//! The model replies at once, and the tools read two small files, so that the time is that of the loop itself: the
//! machine, the driver, the conversation, and the tools' own checks. `inline` runs everything on one thread; `threads`
//! is the real runner, with a thread for each call and a pool for the tools. A run has a hundred turns; the reported
//! time is that of one.
#![allow(clippy::unwrap_used)] // a benchmark may fail
#![allow(clippy::cast_precision_loss)] // it counts no more than billions

use std::sync::Arc;
use std::time::{Duration, Instant};

use architect::runner::{InlineExecutor, SystemClock, ThreadExecutor};
use criterion::{Criterion, criterion_group, criterion_main};
use subject::TurnFixture;

#[path = "subjects/turn.rs"]
mod subject;

const TURNS: u32 = 100;

fn turns(c: &mut Criterion) {
    let fixture = TurnFixture::new();
    let each = |iterations: u64, once: &dyn Fn()| {
        let begun = Instant::now();
        (0..iterations.div_ceil(TURNS.into())).for_each(|_| once());
        let runs = iterations.div_ceil(TURNS.into());
        let per_turn = begun.elapsed().as_secs_f64() / (runs * u64::from(TURNS)) as f64;
        Duration::from_secs_f64(per_turn * iterations as f64)
    };
    c.bench_function("a turn with two tools, inline", |b| {
        b.iter_custom(|n| each(n, &|| fixture.run(TURNS, InlineExecutor::new())));
    });
    c.bench_function("a turn with two tools, threads", |b| {
        let executor = || ThreadExecutor::new(Arc::new(SystemClock::start()), 4);
        b.iter_custom(|n| each(n, &|| fixture.run(TURNS, executor())));
    });
}

criterion_group!(benches, turns);
criterion_main!(benches);
