//! The cost of the journal: one record without a sync, and reading a long session.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a benchmark prints

use std::fs;
use std::hint::black_box;
use std::time::SystemTime;

use architect::journal::{Durability, ForkOptions, SessionIndex, SessionStore};
use architect::machine::{
    Authorization, CallIntent, Event, Fingerprint, Machine, RequestSize, State,
};
use architect::port::{Journal as _, JournalRecord};
use architect::types::{
    CallAccess, EffectId, Reply, ReplyFinish, ReplyPart, RunTime, Signal, TimeSpan, Tokens,
    ToolCall, ToolResult, ToolStatus, Usage,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use subject::begin;

#[path = "subjects/journal.rs"]
mod subject;

/// The event that a run waits for: a turn reads a file of this size.
fn awaited(fold: &Machine, text: &str) -> Event {
    let id = fold.state.pending_effects()[0];
    match &fold.state {
        State::Preparing(_) => {
            let facts = RequestSize {
                estimate: Tokens(1_000),
                upper_bound: Tokens(1_200),
                exchanges: 3,
                ..RequestSize::default()
            };
            Event::Prepared { id, size: facts, messages: [].into() }
        }
        State::Calling(_) => {
            let call = format!("call_{}", id.0);
            let call = ToolCall::new(call.as_str().into(), "read_file", r#"{"path":"src/lib.rs"}"#);
            let reply = Reply {
                parts: [ReplyPart::Text("Let me look.".into()), ReplyPart::Call(call)].into(),
                finish: ReplyFinish::ToolCalls,
                usage: Usage { input: Tokens(1_000), output: Tokens(50), ..Usage::default() },
                model: None,
            };
            Event::Replied { id, reply, access: [CallAccess::read("src/lib.rs")].into() }
        }
        State::Executing(executing) => authorized_or_completed(executing, id, text),
        _ => unreachable!("the run only turns round"),
    }
}

fn authorized_or_completed(
    state: &architect::machine::Executing,
    id: EffectId,
    text: &str,
) -> Event {
    let call = &state.calls[0];
    if let architect::machine::CallState::Authorizing { .. } = call.state {
        let limit = TimeSpan::from_secs(60);
        let grounds = "reads are allowed".into();
        let authorization = Authorization::Approved {
            timeout: limit,
            intent: CallIntent::ReadOnly,
            reason: grounds,
        };
        Event::Authorized { id, authorization }
    } else {
        let result = ToolResult::new(call.call.id.clone(), ToolStatus::Ok, text);
        Event::ToolCompleted { id, result }
    }
}

fn records(c: &mut Criterion) {
    let temp = tempfile::tempdir().unwrap();
    let store = SessionStore::open(&temp.path().join("state"), Durability::Os).unwrap();
    let (mut journal, fold, outcomes) = begin(&store, temp.path());
    let met = Fingerprint::of(&fold, &outcomes.effects);
    let mut group = c.benchmark_group("one record without a sync");
    for (name, bytes) in [("of 300 bytes", 100), ("of 8 kB", 8_000)] {
        let result = ToolResult::new("call_1".into(), ToolStatus::Ok, "x".repeat(bytes));
        let event = Event::ToolCompleted { id: EffectId(1), result };
        group.bench_function(name, |b| {
            b.iter(|| {
                journal
                    .append(
                        RunTime(1),
                        JournalRecord::Event { event: &event, fingerprint: met, timing: None },
                    )
                    .unwrap();
            });
        });
    }
    group.finish();
    c.bench_function("the mark of a record", |b| {
        b.iter(|| black_box(Fingerprint::of(&fold, &outcomes.effects)));
    });
}

/// A session of 100 MB in many turns.
fn resume(c: &mut Criterion) {
    const SIZE: u64 = 100 << 20;
    let temp = tempfile::tempdir().unwrap();
    let store = SessionStore::open(&temp.path().join("state"), Durability::Os).unwrap();
    let (mut journal, mut fold, mut outcomes) = begin(&store, temp.path());
    let session = journal.session();
    let path = temp.path().join(format!("state/sessions/{session}.jsonl"));
    let text = "fn main() { println!(\"a line of code\"); }\n".repeat(150);
    let mut at = RunTime(0);
    while fs::metadata(&path).unwrap().len() < SIZE {
        for _ in 0..100 {
            at = at.after(TimeSpan(10));
            let event = awaited(&fold, &text);
            let met = Fingerprint::of(&fold, &outcomes.effects);
            journal
                .append(at, JournalRecord::Event { event: &event, fingerprint: met, timing: None })
                .unwrap();
            (fold, outcomes) = fold.handle(at, event);
        }
    }
    drop(journal);
    let mut group = c.benchmark_group("a session of 100 MB");
    group.sample_size(10).throughput(Throughput::Bytes(SIZE));
    group.bench_function("folded", |b| {
        b.iter(|| black_box(store.load(session).unwrap()));
    });
    group.finish();
}

/// Sessions of 31 steps that have ended, and an index that knows none of them.
fn first_list(c: &mut Criterion) {
    const SESSIONS: usize = 5_000;
    let temp = tempfile::tempdir().unwrap();
    let store = SessionStore::open(&temp.path().join("state"), Durability::Os).unwrap();
    let (mut journal, mut fold, mut outcomes) = begin(&store, temp.path());
    let session = journal.session();
    let text = "x".repeat(1_500);
    let mut at = RunTime(0);
    loop {
        at = at.after(TimeSpan(10));
        let met = Fingerprint::of(&fold, &outcomes.effects);
        if let State::Done(done) = &fold.state {
            journal.append(at, JournalRecord::Ended { done, fingerprint: met }).unwrap();
            break;
        }
        let event = match fold.state.run().steps {
            0..31 => awaited(&fold, &text),
            _ => Event::Interrupt { signal: Signal::Interrupt },
        };
        journal
            .append(at, JournalRecord::Event { event: &event, fingerprint: met, timing: None })
            .unwrap();
        (fold, outcomes) = fold.handle(at, event);
    }
    drop(journal);
    let fork = ForkOptions {
        after: None,
        replacement: None,
        lane: None,
        workspace: None,
        now: SystemTime::now(),
    };
    for _ in 1..SESSIONS {
        store.fork(session, &fork).unwrap();
    }
    let bytes = store.list().unwrap()[0].bytes;
    let mut group = c.benchmark_group(format!("{SESSIONS} sessions of {bytes} bytes"));
    group.sample_size(10);
    group.bench_function("listed for the first time", |b| {
        b.iter(|| {
            assert_eq!(SessionIndex::rebuild(&store).unwrap().list().unwrap().len(), SESSIONS);
        });
    });
    group.finish();
}

criterion_group!(benches, records, resume, first_list);
criterion_main!(benches);
