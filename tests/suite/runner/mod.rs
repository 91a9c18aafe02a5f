//! The driver: the same loop on one thread and on several.

mod context_window;
mod fixture;
mod lost_tasks;
mod resource_usage;
mod ten_thousand_steps;

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use architect::machine::{CallPurpose, Event};
use architect::port::CancellationToken;
use architect::runner::{
    DriverInput, EffectTask, Executor, SystemClock, TaskThread, ThreadExecutor,
};
use architect::types::{EffectId, FaultKind, RunTime, TimeSpan, ToolStatus};

use crate::kit::run::{output, reason, results};
use crate::kit::system::wait_until;
use fixture::{DriverFixture, HANG, ScriptedReply, interrupt};

const CHAIN: [(&str, &str); 4] = [
    ("follow", r#"{"call":"follow-1"}"#),
    ("follow", r#"{"call":"follow-2"}"#),
    ("follow", r#"{"call":"read-3"}"#),
    ("read", "{}"),
];

#[test]
fn a_text_is_the_final_answer() {
    let (machine, record) = DriverFixture::new(&[ScriptedReply::Text("done")]).run_inline();
    assert_eq!((reason(&machine).name(), output(&machine)), ("llm_done", "done"));
    assert_eq!(record.requests, [(CallPurpose::Agent, 6)]);
}

#[test]
fn both_executors_lead_to_the_same_end() {
    let replies =
        [ScriptedReply::Calls(vec![("read", "{}"), ("write", "{}")]), ScriptedReply::Text("done")];
    let (inline, _) = DriverFixture::new(&replies).run_inline();
    let (threads, _) = DriverFixture::new(&replies).run_on_threads(|_| {});
    let statuses = |machine| -> Vec<_> {
        results(machine).iter().map(|result| (result.call.clone(), result.status)).collect()
    };
    assert_eq!(statuses(&inline), statuses(&threads));
    assert_eq!(output(&inline), output(&threads));
}

#[test]
fn reads_run_together_and_are_answered_in_call_order() {
    // Each call ends after the next one, so that all have to run at the same time.
    let replies = [ScriptedReply::Calls(CHAIN.to_vec()), ScriptedReply::Text("done")];
    let (machine, record) = DriverFixture::new(&replies).run_on_threads(|_| {});
    assert_eq!(record.did, ["read-3", "follow-2", "follow-1", "follow-0"]);
    let answered: Vec<&str> = results(&machine).iter().map(|result| result.call.as_str()).collect();
    assert_eq!(answered, ["follow-0", "follow-1", "follow-2", "read-3"]);
}

#[test]
fn a_step_limit_leads_to_a_closing_call_without_tools() {
    let mut fixture = DriverFixture::new(&[
        ScriptedReply::Calls(vec![("read", "{}")]),
        ScriptedReply::Text("so far"),
    ]);
    fixture.rules.limits.max_steps = 1;
    let (machine, record) = fixture.run_inline();
    assert_eq!((reason(&machine).name(), output(&machine)), ("max_steps", "so far"));
    assert_eq!(record.requests, [(CallPurpose::Agent, 6), (CallPurpose::Closing, 0)]);
}

#[test]
fn a_failing_model_is_retried_a_bounded_number_of_times() {
    let mut replies = vec![ScriptedReply::Fails(FaultKind::Server); 4];
    let (machine, record) = DriverFixture::new(&replies).run_inline();
    assert_eq!((reason(&machine).exit_code(), record.requests.len()), (1, 4));
    replies[3] = ScriptedReply::Text("at last");
    let (machine, _) = DriverFixture::new(&replies).run_inline();
    assert_eq!(output(&machine), "at last");
}

#[test]
fn a_timeout_ends_a_call_that_is_under_way() {
    let mut fixture = DriverFixture::new(&[
        ScriptedReply::Slowly("well", TimeSpan::from_secs(100), "late"),
        ScriptedReply::Text("in time"),
    ]);
    fixture.rules.limits.timeout = Some(TimeSpan::from_secs(60));
    let (machine, record) = fixture.run_inline();
    assert_eq!((reason(&machine).name(), output(&machine)), ("timeout", "in time"));
    assert_eq!(machine.state.run().now.0, TimeSpan::from_secs(54).0);
    assert!(record.records.contains(&r#"#2 sent "well""#.to_owned()));
}

/// The calls of two attempts have the same ids where the provider has none.
#[test]
fn a_reply_that_comes_after_its_timeout_does_not_change_what_runs() {
    let late = [("wait-0", "wait"), ("write-1", "panic")];
    let calls = vec![("wait", "{}"), ("write", "{}")];
    let mut fixture = DriverFixture::new(&[
        ScriptedReply::Late(TimeSpan::from_secs(80), late),
        ScriptedReply::Calls(calls),
        ScriptedReply::Text("done"),
    ]);
    fixture.rules.timeouts.attempt = TimeSpan::from_secs(60);
    let (machine, record) = fixture.run_inline();
    assert_eq!((output(&machine), &*record.did[1]), ("done", "write-1"));
}

#[test]
fn a_timeout_holds_in_real_time() {
    let begun = Instant::now();
    let slow = ScriptedReply::Slowly("", TimeSpan::from_secs(100), "");
    let mut fixture = DriverFixture::new(&[slow.clone(), slow]);
    fixture.rules.limits.timeout = Some(TimeSpan::from_millis(500));
    let (machine, _) = fixture.run_on_threads(|_| {});
    assert_eq!(reason(&machine).name(), "timeout");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn an_interrupt_ends_a_call_and_its_partial_text_is_not_in_the_history() {
    let begun = Instant::now();
    let fixture =
        DriverFixture::new(&[ScriptedReply::Slowly("almost", TimeSpan::from_secs(60), "never")]);
    let record = Arc::clone(&fixture.record);
    let (machine, record) = fixture.run_on_threads(|inbox| {
        thread::spawn(move || {
            wait_until("the text is there", || !record.lock().unwrap().deltas.is_empty());
            inbox.send(interrupt());
        });
    });
    assert_eq!(reason(&machine).exit_code(), 130);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(record.deltas, "almost");
    assert_eq!(machine.conversation.entries().len(), 1);
}

/// Fault T25.
#[test]
fn a_panicking_tool_fails_its_own_call_only() {
    let calls = vec![("read", "{}"), ("panic", "{}"), ("read", "{}")];
    let (machine, _) =
        DriverFixture::new(&[ScriptedReply::Calls(calls), ScriptedReply::Text("done")])
            .run_on_threads(|_| {});
    let statuses: Vec<ToolStatus> = results(&machine).iter().map(|result| result.status).collect();
    assert_eq!(statuses, [ToolStatus::Ok, ToolStatus::Failed, ToolStatus::Ok]);
    assert_eq!(output(&machine), "done");
}

#[test]
fn a_panicking_model_is_a_fault() {
    let (machine, _) = DriverFixture::new(&[ScriptedReply::Panics, ScriptedReply::Text("done")])
        .run_on_threads(|_| {});
    assert_eq!(output(&machine), "done");
}

/// Fault T26: the run continues at its deadline, and does not wait for the tool at its end.
#[test]
fn a_tool_that_never_returns_does_not_block_the_run() {
    let begun = Instant::now();
    let mut fixture = DriverFixture::new(&[
        ScriptedReply::Calls(vec![("hang", "{}")]),
        ScriptedReply::Text("had to leave"),
    ]);
    fixture.rules.limits.timeout = Some(TimeSpan::from_secs(1));
    // The run closes at nine tenths, and ends a twentieth later: a time that the clock does not reach, so that the
    // closing call is never late, however busy the machine is.
    let (machine, _) = fixture.run_until(RunTime(TimeSpan::from_millis(920).0));
    assert_eq!((reason(&machine).name(), output(&machine)), ("timeout", "had to leave"));
    let [result] = results(&machine)[..] else { panic!("one result") };
    assert_eq!((result.call.as_str(), result.status), ("hang-0", ToolStatus::Interrupted));
    assert!(begun.elapsed() < HANG / 2, "{:?}", begun.elapsed());
}

#[test]
fn a_rejected_call_has_a_result_and_never_runs() {
    let replies = [
        ScriptedReply::Calls(vec![("forbidden", "{}"), ("read", "{}")]),
        ScriptedReply::Text("done"),
    ];
    let (machine, record) = DriverFixture::new(&replies).run_inline();
    assert_eq!(results(&machine)[0].status, ToolStatus::Denied);
    assert_eq!(record.did, ["read-1"]);
}

/// Fault S3, for every record of a run: no effect starts after a record that could not be written.
#[test]
fn a_full_disk_ends_the_run_before_the_next_effect() {
    let replies = [ScriptedReply::Calls(vec![("write", "{}")]), ScriptedReply::Text("done")];
    let (_, whole) = DriverFixture::new(&replies).run_inline();
    // The last record only repeats those before it; a run may end without it.
    for capacity in 0..whole.records.len() - 1 {
        let mut fixture = DriverFixture::new(&replies);
        fixture.capacity = capacity;
        let (machine, record) = fixture.run_inline();
        assert_eq!(reason(&machine).name(), "store_error");
        let is_authorized = record.records.iter().any(|line| line.contains("vetted"));
        assert_eq!(!record.did.is_empty(), is_authorized && capacity > 2, "{capacity}");
    }
}

/// Fault S4: no effect starts on a record that may not be durable.
#[test]
fn a_failed_sync_ends_the_run_before_the_effect() {
    let replies = [ScriptedReply::Calls(vec![("write", "{}")]), ScriptedReply::Text("done")];
    for (at, did) in [(1, 0), (2, 0), (3, 1)] {
        let mut fixture = DriverFixture::new(&replies);
        fixture.sync_fails_at = Some(at);
        let (machine, record) = fixture.run_inline();
        assert_eq!((reason(&machine).name(), record.did.len()), ("store_error", did), "{at}");
    }
}

#[test]
fn only_calls_that_change_something_are_synced_before() {
    let syncs = |tool| {
        let replies = [ScriptedReply::Calls(vec![(tool, "{}")]), ScriptedReply::Text("done")];
        DriverFixture::new(&replies).run_inline().1.syncs
    };
    // Before each of two model calls and at the end; before the tool only where it changes something.
    assert_eq!((syncs("read"), syncs("write")), (3, 4));
}

#[test]
fn a_run_ends_when_its_observer_disconnects() {
    let mut fixture = DriverFixture::new(&[
        ScriptedReply::Calls(vec![("write", "{}")]),
        ScriptedReply::Text("done"),
    ]);
    fixture.leaves_after = 2;
    let (machine, _) = fixture.run_inline();
    assert_eq!(reason(&machine).exit_code(), 141);
}

/// Starts a task on a dedicated thread.
fn on_a_thread(executor: &mut ThreadExecutor, work: impl FnOnce() + Send + 'static) {
    executor.start(EffectTask {
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
fn a_thread_is_used_again_unless_its_task_is_stuck() {
    let mut executor = ThreadExecutor::new(Arc::new(SystemClock::start()), 1);
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut threads = HashSet::new();
    for _ in 0..50 {
        let sender = sender.clone();
        on_a_thread(&mut executor, move || sender.send(thread::current().id()).unwrap());
        threads.insert(receiver.recv_timeout(Duration::from_secs(20)).unwrap());
        assert!(executor.wait_input(None).is_some());
    }
    // A call may start before the thread of the one before is free.
    assert!(threads.len() < 40, "{} threads", threads.len());
    let (release, held) = std::sync::mpsc::channel::<()>();
    on_a_thread(&mut executor, move || {
        let _ = held.recv_timeout(Duration::from_secs(20));
    });
    on_a_thread(&mut executor, move || sender.send(thread::current().id()).unwrap());
    assert!(receiver.recv_timeout(Duration::from_secs(10)).is_ok());
    release.send(()).unwrap();
}
