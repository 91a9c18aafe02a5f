//! Suspension of the machine during a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use architect::machine::StopReason;
use architect::port::Clock;
use architect::runner::{SystemClock, ThreadExecutor};
use architect::types::{RunLimits, RunRules, RunTime, TimeSpan};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::caller::long_timeouts;
use super::run_endings::{FinishedRun, drive_with};
use crate::kit::chat::{delta, text};
use crate::kit::cli::{CliFixture, outcome, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

/// A clock that counts during a suspension. A wait ends with the next data of the server, not at a deadline.
struct SleepingClock {
    awake: SystemClock,
    slept: AtomicU64,
}

impl Clock for SleepingClock {
    fn now(&self) -> RunTime {
        self.awake.now().after(TimeSpan(self.slept.load(Ordering::SeqCst)))
    }

    fn wall_time(&self) -> SystemTime {
        self.awake.wall_time()
    }
}

/// Returns an endless reply.
fn dripping() -> ScriptedReply {
    let words = delta(&json!({"content": "and on "}));
    ScriptedReply::open_stream().repeat_chunk(&words, Duration::from_millis(20))
}

/// Runs with a server; the machine is suspended for this long after the first request.
fn asleep(
    replies: impl IntoIterator<Item = ScriptedReply>,
    limits: RunLimits,
    hours: u64,
) -> FinishedRun {
    let server = Server::new(replies);
    let clock = Arc::new(SleepingClock { awake: SystemClock::start(), slept: AtomicU64::new(0) });
    let executor = ThreadExecutor::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let rules = RunRules { limits, ..RunRules::default() };
    let begun = Instant::now();
    let fold = thread::scope(|scope| {
        scope.spawn(|| {
            server.wait_for(1);
            clock.slept.store(TimeSpan::from_secs(hours * 3_600).0, Ordering::SeqCst);
        });
        let model = super::recorded_streams::Wire::Chat.model();
        drive_with(executor, rules, model, &long_timeouts(&server, "/v1"))
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    FinishedRun { fold, requests: server.requests() }
}

/// Faults L59 and C2: a call that was interrupted by a suspension is retried.
#[test]
fn a_call_interrupted_by_suspension_is_retried() {
    let ran = asleep([dripping(), text("Good morning.")], RunLimits::default(), 8);
    assert_eq!((ran.reason(), ran.output()), (StopReason::LlmDone, "Good morning."));
    assert_eq!(ran.requests.len(), 2);
}

/// Fault C2: nothing is started after the time limit of the run.
#[test]
fn a_run_ends_if_its_time_passed_during_suspension() {
    let limits = RunLimits { timeout: Some(TimeSpan::from_secs(3_600)), ..RunLimits::default() };
    let ran = asleep([dripping(), text("Too late.")], limits, 8);
    assert_eq!((ran.reason().name(), ran.requests.len()), ("timeout", 1));
}

/// Fault L59: for a process that is stopped and continued, time passes as in a suspension.
#[test]
fn a_process_stopped_during_a_call_retries_it() {
    let world = CliFixture::new();
    let server = Server::new([ScriptedReply::silence(), text("Back.")]);
    let settings = ["--set", "llm.timeout=3", "--set", "llm.retries=1", "--json"];
    let child = world.command_with_server(&server, &settings).spawn().unwrap();
    server.wait_for(1);
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    thread::sleep(Duration::from_millis(3_500));
    assert_eq!(server.requests().len(), 1, "it is stopped");
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(0, "llm_done", "success"), "{}", ran.err);
    assert_eq!((ran.json()["output"].as_str(), server.requests().len()), (Some("Back."), 2));
}

/// Fault L59: retries end on a machine that is suspended again and again.
#[test]
fn repeated_suspension_ends_the_retries() {
    let server = Server::repeating([ScriptedReply::silence()]);
    let world = CliFixture::new();
    let settings = ["--set", "llm.timeout=0.3", "--set", "llm.retries=1", "--json"];
    let child = world.command_with_server(&server, &settings).spawn().unwrap();
    for request in 1..=2 {
        server.wait_for(request);
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        thread::sleep(Duration::from_millis(400));
        kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    }
    let ran = wait_for_exit(child);
    assert_eq!(ran.outcome(), outcome(5, "llm_error", "failed"), "{}", ran.err);
    assert_eq!(server.requests().len(), 2);
}
