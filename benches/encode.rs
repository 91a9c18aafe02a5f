//! The cost of the next request, by the length of the conversation.
//!
//! Each iteration adds an exchange with a result of two thousand bytes to a conversation that was sent before, and
//! assembles the request without sending it.

#![allow(clippy::unwrap_used)] // a benchmark that cannot begin is over

use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use subject::{MODELS, SentConversation, exchange};

#[path = "subjects/encode.rs"]
mod subject;

fn requests(c: &mut Criterion) {
    for name in MODELS {
        let mut group = c.benchmark_group(name);
        group.sample_size(20).warm_up_time(Duration::from_millis(300));
        group.measurement_time(Duration::from_secs(1));
        for count in [10, 100, 1_000, 10_000] {
            let mut talk = SentConversation::new(name, count);
            let mut number = count;
            let mut fresh = || {
                number += 1;
                exchange(number)
            };
            group.bench_function(BenchmarkId::from_parameter(count), |b| {
                b.iter_batched(&mut fresh, |new| talk.append(new), BatchSize::SmallInput);
            });
        }
        group.finish();
    }
}

criterion_group!(benches, requests);
criterion_main!(benches);
