//! The driver: the same loop on the spot and on threads.

mod context_window;
mod fixture;
mod resource_usage;
mod ten_thousand_steps;

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use architect::machine::{CallPurpose, Event};
use architect::model::{EffectId, FaultKind, RunTime, TimeSpan, ToolStatus};
use architect::port::CancellationToken;
use architect::runner::{
    DriverInput, EffectTask, Executor, SystemClock, TaskThread, ThreadExecutor,
};

use fixture::{DriverFixture, ScriptedReply, interrupt, output, reason, results};

const NAPS: [(&str, &str); 4] = [
    ("nap", r#"{"m":200}"#),
    ("nap", r#"{"m":150}"#),
    ("nap", r#"{"m":100}"#),
    ("nap", r#"{"m":50}"#),
];

#[test]
fn a_text_is_an_answer() {
    let (fold, noticed) = DriverFixture::new(&[ScriptedReply::Text("done")]).run_inline();
    assert_eq!((reason(&fold).name(), output(&fold).as_str()), ("llm_done", "done"));
    assert_eq!(noticed.asked, [(CallPurpose::Agent, 5)]);
}

#[test]
fn both_hands_lead_to_the_same_end() {
    let says =
        [ScriptedReply::Calls(vec![("read", "{}"), ("write", "{}")]), ScriptedReply::Text("done")];
    let (inline, _) = DriverFixture::new(&says).run_inline();
    let (threads, _) = DriverFixture::new(&says).run_on_threads(|_| {});
    assert_eq!(results(&inline), results(&threads));
    assert_eq!(output(&inline), output(&threads));
}

#[test]
fn reads_run_together_and_are_answered_in_call_order() {
    let begun = Instant::now();
    let says = [ScriptedReply::Calls(NAPS.to_vec()), ScriptedReply::Text("done")];
    let (fold, noticed) = DriverFixture::new(&says).run_on_threads(|_| {});
    assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
    assert_eq!(noticed.did, ["nap-3", "nap-2", "nap-1", "nap-0"]);
    let answered: Vec<String> = results(&fold).into_iter().map(|(call, _)| call).collect();
    assert_eq!(answered, ["nap-0", "nap-1", "nap-2", "nap-3"]);
}

#[test]
fn a_limit_on_steps_closes_with_a_call_without_tools() {
    let mut world = DriverFixture::new(&[
        ScriptedReply::Calls(vec![("read", "{}")]),
        ScriptedReply::Text("so far"),
    ]);
    world.rules.limits.max_steps = 1;
    let (fold, noticed) = world.run_inline();
    assert_eq!((reason(&fold).name(), output(&fold).as_str()), ("max_steps", "so far"));
    assert_eq!(noticed.asked, [(CallPurpose::Agent, 5), (CallPurpose::Closing, 0)]);
}

#[test]
fn a_failing_model_is_asked_again_and_then_given_up() {
    let mut says = vec![ScriptedReply::Fails(FaultKind::Server); 4];
    let (fold, noticed) = DriverFixture::new(&says).run_inline();
    assert_eq!((reason(&fold).exit_code(), noticed.asked.len()), (1, 4));
    says[3] = ScriptedReply::Text("at last");
    let (fold, _) = DriverFixture::new(&says).run_inline();
    assert_eq!(output(&fold), "at last");
}

#[test]
fn time_is_up_in_the_middle_of_a_call() {
    let mut world = DriverFixture::new(&[
        ScriptedReply::Slowly("well", TimeSpan::from_secs(100), "late"),
        ScriptedReply::Text("in time"),
    ]);
    world.rules.limits.timeout = Some(TimeSpan::from_secs(60));
    let (fold, noticed) = world.run_inline();
    assert_eq!((reason(&fold).name(), output(&fold).as_str()), ("timeout", "in time"));
    assert_eq!(fold.state.run().now.0, TimeSpan::from_secs(54).0);
    assert!(noticed.records.contains(&r#"#2 had said "well""#.to_owned()));
}

#[test]
fn a_timeout_is_kept_on_real_clocks_too() {
    let begun = Instant::now();
    let slow = ScriptedReply::Slowly("", TimeSpan::from_secs(100), "");
    let mut world = DriverFixture::new(&[slow.clone(), slow]);
    world.rules.limits.timeout = Some(TimeSpan::from_millis(500));
    let (fold, _) = world.run_on_threads(|_| {});
    assert_eq!(reason(&fold).name(), "timeout");
    assert!(begun.elapsed() < Duration::from_millis(600), "{:?}", begun.elapsed());
}

#[test]
fn an_interrupt_ends_a_call_and_keeps_what_was_said_out_of_the_history() {
    let begun = Instant::now();
    let world =
        DriverFixture::new(&[ScriptedReply::Slowly("almost", TimeSpan::from_secs(60), "never")]);
    let (fold, noticed) = world.run_on_threads(|inbox| {
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            inbox.send(interrupt());
        });
    });
    assert_eq!(reason(&fold).exit_code(), 130);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(noticed.deltas, "almost");
    assert_eq!(fold.conversation.entries().len(), 1);
}

/// Fault T25.
#[test]
fn a_tool_that_breaks_down_costs_its_own_result_only() {
    let calls = vec![("read", "{}"), ("panic", "{}"), ("read", "{}")];
    let (fold, _) = DriverFixture::new(&[ScriptedReply::Calls(calls), ScriptedReply::Text("done")])
        .run_on_threads(|_| {});
    let statuses: Vec<ToolStatus> = results(&fold).into_iter().map(|(_, status)| status).collect();
    assert_eq!(statuses, [ToolStatus::Ok, ToolStatus::Failed, ToolStatus::Ok]);
    assert_eq!(output(&fold), "done");
}

#[test]
fn a_model_that_breaks_down_is_a_fault() {
    let (fold, _) = DriverFixture::new(&[ScriptedReply::Panics, ScriptedReply::Text("done")])
        .run_on_threads(|_| {});
    assert_eq!(output(&fold), "done");
}

/// Fault T26: the run goes on at the deadline of the whole run, and does not wait for the deaf tool at its end.
#[test]
fn a_tool_that_never_comes_back_does_not_hold_the_run() {
    let begun = Instant::now();
    let mut world = DriverFixture::new(&[
        ScriptedReply::Calls(vec![("hang", "{}")]),
        ScriptedReply::Text("had to leave"),
    ]);
    world.rules.limits.timeout = Some(TimeSpan::from_secs(1));
    let (fold, _) = world.run_on_threads(|_| {});
    assert_eq!(output(&fold), "had to leave");
    assert_eq!(results(&fold), [("hang-0".to_owned(), ToolStatus::Interrupted)]);
    assert!(begun.elapsed() < Duration::from_millis(1_200), "{:?}", begun.elapsed());
}

#[test]
fn a_call_that_is_refused_is_answered_and_never_runs() {
    let says = [
        ScriptedReply::Calls(vec![("forbidden", "{}"), ("read", "{}")]),
        ScriptedReply::Text("done"),
    ];
    let (fold, noticed) = DriverFixture::new(&says).run_inline();
    assert_eq!(results(&fold)[0].1, ToolStatus::Denied);
    assert_eq!(noticed.did, ["read-1"]);
}

/// Fault S3, for every record of a run: nothing happens after the record that could not be kept.
#[test]
fn a_full_disk_ends_the_run_before_the_next_effect() {
    let says = [ScriptedReply::Calls(vec![("write", "{}")]), ScriptedReply::Text("done")];
    let (_, whole) = DriverFixture::new(&says).run_inline();
    // The last record sums up what those before it say; a run may end without it.
    for room in 0..whole.records.len() - 1 {
        let mut world = DriverFixture::new(&says);
        world.room = room;
        let (fold, noticed) = world.run_inline();
        assert_eq!(reason(&fold).name(), "store_error");
        let vetted = noticed.records.iter().any(|record| record.contains("vetted"));
        assert_eq!(!noticed.did.is_empty(), vetted && room > 2, "{room}");
    }
}

/// Fault S4: what is not certain to be durable justifies nothing.
#[test]
fn a_failed_sync_ends_the_run_before_the_effect() {
    let says = [ScriptedReply::Calls(vec![("write", "{}")]), ScriptedReply::Text("done")];
    for (at, did) in [(1, 0), (2, 0), (3, 1)] {
        let mut world = DriverFixture::new(&says);
        world.sync_fails_at = Some(at);
        let (fold, noticed) = world.run_inline();
        assert_eq!((reason(&fold).name(), noticed.did.len()), ("store_error", did), "{at}");
    }
}

#[test]
fn reading_needs_no_durability_and_writing_does() {
    let syncs = |tool| {
        let says = [ScriptedReply::Calls(vec![(tool, "{}")]), ScriptedReply::Text("done")];
        DriverFixture::new(&says).run_inline().1.syncs
    };
    // Before each of two model calls and at the end; before the tool only where it changes something.
    assert_eq!((syncs("read"), syncs("write")), (3, 4));
}

#[test]
fn a_run_that_nobody_watches_any_more_ends() {
    let mut world = DriverFixture::new(&[
        ScriptedReply::Calls(vec![("write", "{}")]),
        ScriptedReply::Text("done"),
    ]);
    world.leaves_after = 2;
    let (fold, _) = world.run_inline();
    assert_eq!(reason(&fold).exit_code(), 141);
}

/// Starts some work on a thread of its own.
fn on_a_thread(hands: &mut ThreadExecutor, work: impl FnOnce() + Send + 'static) {
    hands.start(EffectTask {
        id: EffectId(1),
        thread: TaskThread::Dedicated,
        cancel: CancellationToken::new(),
        run: Box::new(|_, _| {
            work();
            DriverInput::Event(Event::Tick { now: RunTime(1) })
        }),
        on_failure: Box::new(|why| panic!("{why}")),
    });
}

#[test]
fn a_call_uses_the_thread_of_the_one_before_unless_that_one_is_stuck() {
    let mut hands = ThreadExecutor::new(Arc::new(SystemClock::start()), 1);
    let (tell, told) = std::sync::mpsc::channel();
    let mut threads = HashSet::new();
    for _ in 0..50 {
        let tell = tell.clone();
        on_a_thread(&mut hands, move || tell.send(thread::current().id()).unwrap());
        threads.insert(told.recv_timeout(Duration::from_secs(20)).unwrap());
        assert!(hands.wait_input(None).is_some());
    }
    // Now and then the next call comes before the thread is free again.
    assert!(threads.len() < 40, "{} threads", threads.len());
    let (release, held) = std::sync::mpsc::channel::<()>();
    on_a_thread(&mut hands, move || {
        let _ = held.recv_timeout(Duration::from_secs(20));
    });
    on_a_thread(&mut hands, move || tell.send(thread::current().id()).unwrap());
    assert!(told.recv_timeout(Duration::from_secs(10)).is_ok());
    release.send(()).unwrap();
}
