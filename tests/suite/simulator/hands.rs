//! Hands that work on the spot, with panics caught as on threads, and signals that come by chance.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use architect::machine::{Deadline, Event};
use architect::model::{Signal, Span, Time};
use architect::port::Clock;
use architect::runner::{Arrival, Hands, Inline, Work};

use super::chance::Chance;
use super::life::{Count, Trouble};

/// What a process that dies leaves: an unwinding that nobody prints.
pub(super) struct Crash;

/// What work that breaks down leaves.
pub(super) struct Breakdown;

/// Breaks down, without a word.
pub(super) fn break_down() -> ! {
    resume_unwind(Box::new(Breakdown))
}

/// Longer than anything waits.
const FOR_EVER: Span = Span::secs(1_000_000_000);

pub(super) struct SimulatedHands {
    pub(super) inline: Inline,
    pub(super) chance: Chance,
    pub(super) trouble: Trouble,
    /// Pieces of work that were started.
    pub(super) works: Count,
    /// How often the driver may still wait.
    pub(super) waits: u32,
}

impl SimulatedHands {
    pub(super) fn new(from: Time, chance: Chance, trouble: Trouble, works: Count) -> Self {
        Self { inline: Inline::resume(from), chance, trouble, works, waits: 20_000 }
    }

    /// Returns whether signals and crashes come by chance.
    fn is_wild(&self) -> bool {
        self.trouble == Trouble::Chance
    }
}

impl Hands for SimulatedHands {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inline.clock()
    }

    fn start(&mut self, work: Work) {
        let Work { id, lane, cancel, run, lost } = work;
        let lost = Arc::new(Mutex::new(Some(lost)));
        let on_panic = Arc::clone(&lost);
        let (nth, trouble) = (self.works.next(), self.trouble);
        // Work that begins a little later changes the order of what arrives.
        let late = match trouble {
            Trouble::HangsOnce(at) if nth == at => FOR_EVER,
            Trouble::HangsFrom(at) if nth >= at => FOR_EVER,
            _ => Span(self.chance.below(3)),
        };
        let breaks_down = match trouble {
            Trouble::BreaksDownOnce(at) => nth == at,
            Trouble::BreaksDownFrom(at) => nth >= at,
            _ => false,
        };
        let run =
            Box::new(move |scope: &architect::port::Scope, post: &architect::runner::Post<'_>| {
                scope.sleep(late);
                let work = || if breaks_down { break_down() } else { run(scope, post) };
                catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
                    // What a test asserts is no breakdown of the world.
                    if !panic.is::<Breakdown>() {
                        resume_unwind(panic);
                    }
                    let lost = on_panic.lock().unwrap().take().unwrap();
                    lost("internal error: it broke down")
                })
            });
        let lost = Box::new(move |why: &str| lost.lock().unwrap().take().unwrap()(why));
        self.inline.start(Work { id, lane, cancel, run, lost });
        if trouble == Trouble::DiesAfter(nth) {
            resume_unwind(Box::new(Crash));
        }
    }

    fn wait(&mut self, deadline: Option<Deadline>) -> Option<Arrival> {
        self.waits -= 1;
        assert!(self.waits > 0, "the run comes to no end");
        if self.is_wild() && self.chance.once_in(125) {
            resume_unwind(Box::new(Crash));
        }
        if self.is_wild() && self.chance.once_in(400) {
            let signal = self.chance.of(&Signal::ALL);
            return Some(Arrival::Event(Event::Interrupt { signal }));
        }
        self.inline.wait(deadline)
    }

    fn ready(&mut self) -> Option<Arrival> {
        self.inline.ready()
    }

    fn settle(&mut self, grace: Span) -> bool {
        self.inline.settle(grace)
    }
}
