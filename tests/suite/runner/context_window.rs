//! No request is larger than the context window, for any results of tools and any purpose of the request.

use std::sync::{Arc, Mutex};

use architect::machine::{CallPurpose, Machine};
use architect::runner::{InlineExecutor, Ports};
use architect::types::{ContextLimits, RunLimits, RunRules, Tokens};
use proptest::prelude::*;

use crate::kit::model::{call, model, reply, text, text_bytes};
use crate::kit::run::{self, done, output, reason, results};
use crate::kit::tools::{FakeTools, ok};

/// Runs twelve steps in a window of this size, with results of these lengths; returns the end, and the purpose and
/// bytes of each request.
fn run(window: u64, lengths: &[usize]) -> (Machine, Vec<(CallPurpose, usize)>) {
    let context = ContextLimits {
        window: Tokens(window),
        summarize_after: 2,
        keep_recent: 1,
        ..ContextLimits::default()
    };
    let limits = RunLimits { max_steps: 12, ..RunLimits::default() };
    let rules = RunRules { context, limits, ..RunRules::default() };
    let sent = Arc::new(Mutex::new(Vec::new()));
    let sizes = Arc::clone(&sent);
    let model = model(move |request| {
        let constant = request.instruction.map_or(0, str::len) + request.system.len();
        let mut sizes = sizes.lock().unwrap();
        sizes.push((request.purpose, text_bytes(request) + constant));
        match request.purpose {
            CallPurpose::Agent => reply([call(&format!("c{}", sizes.len() - 1), "read", "{}")]),
            CallPurpose::Compaction | CallPurpose::Closing => text("so far"),
        }
    });
    let (lengths, next) = (lengths.to_vec(), Mutex::new(0));
    // No two texts are the same: turns that repeat would end the run.
    let tools = FakeTools::new(&[], move |call, _| {
        let mut next = next.lock().unwrap();
        let length = lengths[*next % lengths.len()];
        *next += 1;
        ok(call, &format!("{}{}", call.id, "x".repeat(length)))
    });
    let ports = Ports { tools: Arc::new(tools), ..Ports::new(model) };
    let machine = run::run(InlineExecutor::new(), rules, ports);
    let sent = sent.lock().unwrap().clone();
    (machine, sent)
}

/// Returns the estimated tokens of so many bytes of source code, before a provider has counted any.
fn tokens(bytes: usize) -> u64 {
    (bytes as u64 * 1_000).div_ceil(3_500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_request_is_larger_than_the_window(
        window in 700..20_000_u64,
        lengths in prop::collection::vec(prop_oneof![0..2_000_usize, 0..200_000_usize], 1..12),
    ) {
        let (machine, sent) = run(window, &lengths);
        done(&machine);
        for (purpose, bytes) in sent {
            prop_assert!(tokens(bytes) <= window, "{bytes} bytes for {purpose:?} in {window}");
        }
    }
}

/// The newest exchange can't be dropped; its result is shortened for the closing call only.
#[test]
fn a_large_result_is_shortened_for_the_closing_call() {
    let (machine, sent) = run(16_000, &[98_000]);
    assert_eq!((reason(&machine).name(), output(&machine)), ("context_full", "so far"));
    let [(CallPurpose::Agent, _), (CallPurpose::Closing, bytes)] = sent[..] else {
        panic!("{sent:?}")
    };
    assert!((11_000..=12_000).contains(&tokens(bytes)), "{bytes} bytes");
    let stored: Vec<usize> = results(&machine).iter().map(|result| result.text.len()).collect();
    assert_eq!(stored, ["c0".len() + 98_000]);
}

#[test]
fn a_large_result_is_shortened_for_a_summary() {
    let (_, sent) = run(16_000, &[10, 10, 98_000, 10]);
    let summaries = sent.iter().filter(|(purpose, _)| *purpose == CallPurpose::Compaction);
    let sizes: Vec<u64> = summaries.map(|(_, bytes)| tokens(*bytes)).collect();
    assert!(sizes.iter().all(|size| *size <= 16_000), "{sizes:?}");
}

/// Not even for the closing call.
#[test]
fn a_task_larger_than_the_window_is_not_sent() {
    let (machine, sent) = run(4, &[0]);
    assert_eq!((reason(&machine).name(), sent.len()), ("context_full", 0));
    assert_eq!(done(&machine).run.model_calls, 0);
}
