//! An executor without threads that catches panics as threads do, with random signals.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use architect::machine::{Deadline, Event};
use architect::port::Clock;
use architect::runner::{DriverInput, EffectTask, Executor, InlineExecutor};
use architect::types::{RunTime, Signal, TimeSpan};

use super::directed_fault::{DirectedFault, DirectedKind};
use super::rng::Rng;
use super::session_life::{Counter, InjectedFault};

/// The panic payload of a process that dies; it is not printed.
pub(super) struct Crash;

/// The panic payload of a task that panics.
pub(super) struct TaskPanic;

/// Panics without a message.
pub(super) fn panic_quietly() -> ! {
    resume_unwind(Box::new(TaskPanic))
}

/// Longer than anything waits.
const FOREVER: TimeSpan = TimeSpan::from_secs(1_000_000_000);

pub(super) struct SimulatedExecutor {
    pub(super) inline: InlineExecutor,
    pub(super) chance: Rng,
    pub(super) trouble: InjectedFault,
    /// The number of tasks that were started.
    pub(super) works: Counter,
    pub(super) directed: DirectedFault,
    /// The remaining number of waits of the driver.
    pub(super) waits: u32,
}

impl SimulatedExecutor {
    pub(super) fn new(
        from: RunTime,
        chance: Rng,
        trouble: InjectedFault,
        works: Counter,
        directed: DirectedFault,
    ) -> Self {
        let inline = InlineExecutor::resume(from);
        Self { inline, chance, trouble, works, directed, waits: 20_000 }
    }

    /// Returns whether signals and crashes occur randomly.
    fn is_wild(&self) -> bool {
        self.trouble == InjectedFault::Chance
    }
}

impl Executor for SimulatedExecutor {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inline.clock()
    }

    fn start(&mut self, work: EffectTask) {
        let EffectTask { id, thread: lane, cancel, run, on_failure: lost } = work;
        let lost = Arc::new(Mutex::new(Some(lost)));
        let on_panic = Arc::clone(&lost);
        let (nth, trouble) = (self.works.next(), self.trouble);
        // A task that starts a little later changes the order of inputs.
        let late = match trouble {
            InjectedFault::Chance if self.directed.occurs(DirectedKind::Hang) => FOREVER,
            InjectedFault::HangsOnce(at) if nth == at => FOREVER,
            InjectedFault::HangsFrom(at) if nth >= at => FOREVER,
            _ => TimeSpan(self.chance.below(3)),
        };
        let breaks_down = match trouble {
            InjectedFault::BreaksDownOnce(at) => nth == at,
            InjectedFault::BreaksDownFrom(at) => nth >= at,
            _ => false,
        };
        let run = Box::new(
            move |scope: &architect::port::EffectContext,
                  sender: &architect::runner::InputSink<'_>| {
                scope.sleep(late);
                let work = || if breaks_down { panic_quietly() } else { run(scope, sender) };
                catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
                    // A failed assertion of a test isn't a simulated panic.
                    if !panic.is::<TaskPanic>() {
                        resume_unwind(panic);
                    }
                    let lost = on_panic.lock().unwrap().take().unwrap();
                    lost("internal error: it broke down")
                })
            },
        );
        let lost = Box::new(move |why: &str| lost.lock().unwrap().take().unwrap()(why));
        self.inline.start(EffectTask { id, thread: lane, cancel, run, on_failure: lost });
        if trouble == InjectedFault::DiesAfter(nth) {
            resume_unwind(Box::new(Crash));
        }
    }

    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput> {
        self.waits -= 1;
        assert!(self.waits > 0, "the run doesn't end");
        let occurs = |kind| self.is_wild() && self.directed.occurs(kind);
        if occurs(DirectedKind::Crash) || self.is_wild() && self.chance.once_in(125) {
            resume_unwind(Box::new(Crash));
        }
        if occurs(DirectedKind::InternalError) {
            let error = "a task broke down".into();
            return Some(DriverInput::Event(Event::InternalError { error }));
        }
        if occurs(DirectedKind::Signal) || self.is_wild() && self.chance.once_in(400) {
            let signal = self.chance.of(&Signal::ALL);
            return Some(DriverInput::Event(Event::Interrupt { signal }));
        }
        self.inline.wait_input(deadline)
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        self.inline.try_input()
    }

    fn wait_idle(&mut self, grace: TimeSpan) -> bool {
        self.inline.wait_idle(grace)
    }
}
