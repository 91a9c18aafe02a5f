//! What it costs to write the next request down, by the length of the conversation.
//!
//! Each turn adds one exchange with a result of two thousand bytes to so many entries that were sent before; what is
//! measured is putting the request together, without sending it.

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
