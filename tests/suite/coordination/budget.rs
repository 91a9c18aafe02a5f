//! Runs whose model calls are paid from the budget of a batch.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use architect::machine::{Machine, StopReason};
use architect::port::Model;
use architect::runner::{Ports, SystemClock, ThreadExecutor};
use architect::types::{
    Fault, FaultKind, MicroUsd, OutputLimits, Price, Reply, RunRules, TimeSpan, Tokens, Usage,
};
use architect::workflow::batch::coordination::{
    BudgetedModel, CallLimits, CellPayer, ChargeLimits, CoordinationSettings, Coordinator,
};

use super::settings::{cells, claim, dollars, real_time};
use crate::kit::model::{FakeCall, model, text};
use crate::kit::run::{reason, run};

/// One micro-dollar per input token, ten per output token.
const PRICE: Price = Price {
    input: 1_000_000,
    output: 10_000_000,
    cached_input: 0,
    cache_write: 0,
    long_input: None,
};

fn output() -> OutputLimits {
    OutputLimits { model_limit: Tokens(1_000), minimum: Tokens(50), ..OutputLimits::default() }
}

fn open(dir: &Path, limits: ChargeLimits) -> Arc<Coordinator> {
    let settings = CoordinationSettings { limits, ..real_time() };
    Arc::new(Coordinator::open(dir, &cells(64), settings).unwrap())
}

fn paid(coordinator: &Arc<Coordinator>, model: Box<dyn Model>) -> Box<dyn Model> {
    let limits = CallLimits {
        provider: "fake".into(),
        price: Some(PRICE),
        summary_price: None,
        output: output(),
    };
    let payer = CellPayer::new(Arc::clone(coordinator), claim(coordinator), limits);
    Box::new(BudgetedModel::new(model, payer))
}

fn run_with(model: Box<dyn Model>) -> Machine {
    let executor = ThreadExecutor::new(Arc::new(SystemClock::start()), 1);
    run(executor, RunRules::default(), Ports::new(model))
}

/// Returns a reply with this usage, in tokens.
fn replied(input: u64, output: u64) -> Reply {
    let usage = Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() };
    Reply { usage, ..text("done") }
}

#[test]
fn a_call_is_reserved_before_it_is_sent_and_settled_after() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = open(dir.path(), dollars(1_000_000));
    let during = Arc::clone(&coordinator);
    let answers = model(move |_| {
        let during = Arc::clone(&during);
        FakeCall::new(move |_, _| {
            let reserved = during.progress().unwrap().reserved.money;
            assert!((MicroUsd(10_000)..MicroUsd(11_000)).contains(&reserved), "{reserved}");
            Ok(replied(100, 40))
        })
    });
    assert_eq!(reason(&run_with(paid(&coordinator, answers))), StopReason::LlmDone);
    let ends = coordinator.progress().unwrap();
    assert_eq!((ends.spent.money, ends.spent.tokens), (MicroUsd(500), Tokens(140)));
    assert_eq!(ends.reserved.money, MicroUsd::ZERO);
}

#[test]
fn a_run_ends_at_the_budget_of_its_batch_as_at_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = open(dir.path(), dollars(300));
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let answers = model(move |_| {
        let count = Arc::clone(&count);
        FakeCall::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(replied(1, 1))
        })
    });
    let ended = run_with(paid(&coordinator, answers));
    assert_eq!(reason(&ended), StopReason::from(FaultKind::Budget));
    assert_eq!(sent.load(Ordering::Relaxed), 0);
    assert_eq!(coordinator.progress().unwrap().spent.money, MicroUsd::ZERO);
}

#[test]
fn the_output_limit_is_lowered_to_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = open(dir.path(), ChargeLimits { tokens: Some(Tokens(600)), money: None });
    let answers = model(|request| {
        let output = request.max_output.unwrap();
        assert_eq!(output + request.input_bound, Tokens(600));
        replied(request.input_bound.0, output.0)
    });
    assert_eq!(reason(&run_with(paid(&coordinator, answers))), StopReason::LlmDone);
    assert_eq!(coordinator.progress().unwrap().spent.tokens, Tokens(600));
}

#[test]
fn a_failed_call_costs_what_the_provider_may_charge() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = open(dir.path(), dollars(1_000_000));
    let free = model(|_| FakeCall::failing(FaultKind::Auth));
    run_with(paid(&coordinator, free));
    assert_eq!(coordinator.progress().unwrap().spent.money, MicroUsd::ZERO);
    let billed = model(|_| {
        let fault = Fault::new(FaultKind::Refused, "refused");
        FakeCall::new(move |_, _| Err(Fault { billed: true, received: Tokens(30), ..fault }))
    });
    run_with(paid(&coordinator, billed));
    let spent = coordinator.progress().unwrap().spent.money;
    assert!(spent > MicroUsd(300) && spent < MicroUsd(1_000), "{spent}");
}

/// Each call of each thread costs all that was reserved for it.
#[test]
fn many_workers_spend_the_budget_to_the_last_call_and_not_more() {
    let dir = tempfile::tempdir().unwrap();
    let total = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let coordinator = open(dir.path(), dollars(60_000));
            let total = Arc::clone(&total);
            thread::spawn(move || {
                let ends = (0..4).map(|_| {
                    let total = Arc::clone(&total);
                    let answers = model(move |request| {
                        let (input, output) =
                            (request.input_bound.0, request.max_output.unwrap().0);
                        let total = Arc::clone(&total);
                        FakeCall::new(move |_, _| {
                            total.fetch_add(input + 10 * output, Ordering::Relaxed);
                            Ok(replied(input, output))
                        })
                    });
                    reason(&run_with(paid(&coordinator, answers)))
                });
                ends.filter(|end| *end == StopReason::from(FaultKind::Budget)).count()
            })
        })
        .collect();
    let refused: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    let spent = open(dir.path(), dollars(60_000)).progress().unwrap().spent.money;
    assert_eq!(spent, MicroUsd(total.load(Ordering::Relaxed)));
    assert!(spent <= MicroUsd(60_000) && spent > MicroUsd(50_000), "{spent}");
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_rate_limit_pauses_all_workers() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = open(dir.path(), ChargeLimits::default());
    let other = open(dir.path(), ChargeLimits::default());
    let fault = Fault {
        retry_after: Some(TimeSpan::from_secs(50)),
        advice: architect::types::RetryAdvice::GiveUp,
        ..Fault::new(FaultKind::RateLimited, "slow down")
    };
    let answers = model(move |_| {
        let fault = fault.clone();
        FakeCall::new(move |_, _| Err(fault))
    });
    run_with(paid(&coordinator, answers));
    other.progress().unwrap();
    let pause = other.pause_of("fake");
    assert!(pause > TimeSpan::from_secs(40) && pause <= TimeSpan::from_secs(50), "{pause}");
}

#[test]
fn a_call_waits_out_a_pause_that_is_made_longer_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = open(dir.path(), ChargeLimits::default());
    let (begun, longer) = (Instant::now(), TimeSpan::from_secs(4));
    coordinator.pause("fake", TimeSpan::from_secs(3)).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let at = Arc::clone(&sent);
    let answers = model(move |_| {
        let at = Arc::clone(&at);
        FakeCall::new(move |_, _| {
            at.store(u64::try_from(begun.elapsed().as_micros()).unwrap(), Ordering::Relaxed);
            Ok(replied(1, 1))
        })
    });
    let paid = paid(&coordinator, answers);
    let run = thread::spawn(move || run_with(paid));
    thread::sleep(Duration::from_millis(100));
    coordinator.pause("fake", longer).unwrap();
    assert_eq!(reason(&run.join().unwrap()), StopReason::LlmDone);
    let sent = TimeSpan(sent.load(Ordering::Relaxed));
    assert!(sent > longer, "{sent}");
}
