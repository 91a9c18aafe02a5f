//! Tasks for which the system has no thread, and tasks that ignore their cancellation.

use std::sync::{Arc, Mutex};

use architect::machine::Deadline;
use architect::port::Clock;
use architect::runner::{DriverInput, EffectTask, Executor, InlineExecutor};
use architect::types::{RunTime, TimeSpan, ToolStatus};

use super::fixture::{DriverFixture, ScriptedReply, interrupt};
use crate::kit::run::{output, results};

/// An executor that can't start one of its tasks.
struct OutOfThreads {
    inline: InlineExecutor,
    /// The number of tasks that still start.
    left: u32,
}

impl Executor for OutOfThreads {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inline.clock()
    }

    fn start(&mut self, work: EffectTask) {
        if self.left == 0 {
            self.inline.schedule(RunTime::START, (work.on_failure)("no thread"));
        } else {
            self.inline.start(work);
        }
        self.left = self.left.wrapping_sub(1);
    }

    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput> {
        self.inline.wait_input(deadline)
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        self.inline.try_input()
    }

    fn wait_idle(&mut self, grace: TimeSpan) -> bool {
        self.inline.wait_idle(grace)
    }
}

/// The answer would be sent back as long as the command counts as running.
#[test]
fn a_command_that_was_never_started_is_not_waited_for() {
    let replies = [ScriptedReply::Calls(vec![("serve", "{}")]), ScriptedReply::Text("done")];
    // The first model call and the authorization start.
    let executor = OutOfThreads { inline: InlineExecutor::new(), left: 2 };
    let (machine, record) = DriverFixture::new(&replies).run_with(executor);
    assert_eq!(results(&machine)[0].status, ToolStatus::Failed);
    assert_eq!((output(&machine), record.did.len()), ("done", 0));
    assert!(machine.state.run().commands.is_empty());
}

#[test]
fn a_command_outlives_a_call_that_panics() {
    let replies = [ScriptedReply::Calls(vec![("leave", "{}")]), ScriptedReply::Text("done")];
    let (machine, record) = DriverFixture::new(&replies).run_on_threads(|_| {});
    assert_eq!((results(&machine)[0].status, output(&machine)), (ToolStatus::Failed, "done"));
    let is_ended = record.records.iter().any(|line| line.contains("command_ended"));
    assert!(!is_ended, "{:?}", record.records);
}

/// An executor that records when the driver stops waiting for its tasks.
struct IdleRecorder {
    inline: InlineExecutor,
    stops_waiting: Arc<Mutex<RunTime>>,
}

impl Executor for IdleRecorder {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inline.clock()
    }

    fn start(&mut self, work: EffectTask) {
        self.inline.start(work);
    }

    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput> {
        self.inline.wait_input(deadline)
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        self.inline.try_input()
    }

    fn wait_idle(&mut self, grace: TimeSpan) -> bool {
        *self.stops_waiting.lock().unwrap() = self.clock().now().after(grace);
        self.inline.wait_idle(grace)
    }
}

#[test]
fn an_interrupt_waits_once_for_a_sub_agent_that_ignores_it() {
    let interrupted = RunTime::START.after(TimeSpan::from_secs(1));
    let (mut inline, stops_waiting) = (InlineExecutor::new(), Arc::default());
    inline.schedule(interrupted, interrupt());
    let executor = IdleRecorder { inline, stops_waiting: Arc::clone(&stops_waiting) };
    DriverFixture::new(&[ScriptedReply::Calls(vec![("dispatch", "{}")])]).run_with(executor);
    let waited = stops_waiting.lock().unwrap().since(interrupted);
    assert_eq!(waited, TimeSpan::from_secs(3));
}
