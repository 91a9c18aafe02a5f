//! One life of a session: a run, its crashes, its resumes, its end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use architect::machine::{
    Conversation, Event, Fold, Found, Opening, Outcomes, Resumption, Slot, State, Verdict, step,
};
use architect::model::{
    Item, Limits, Micros, Origin, Price, Rules, Span, Time, Tokens, ToolResult, ToolStatus,
};
use architect::port::{Gone, Observer, Seen};
use architect::runner::{Brief, Driver, Ports};

use super::chance::Chance;
use super::hands::{Crash, SimulatedHands};
use super::invariants;
use super::journal::{Kept, Shared, SimulatedJournal};
use super::model::{Mood, SimulatedModel};
use super::tools::{Done, SimulatedChecks, SimulatedMail, SimulatedTools};

/// What goes wrong besides what the model and the tools do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nothing.
    None,
    /// Anything, now and then.
    Chance,
    /// The Nth use of the journal fails.
    FailsOnce(u64),
    /// The Nth use of the journal fails, and all that follow.
    FailsFrom(u64),
    /// The process dies at the Nth use of the journal.
    DiesAt(u64),
    /// Nobody reads any more from the Nth thing on that is shown.
    ReaderLeaves(u64),
}

/// A life that is over.
pub(super) struct Life {
    pub(super) fold: Fold,
    pub(super) records: Vec<(Time, Kept)>,
    pub(super) crashes: u64,
    pub(super) uses: u64,
    pub(super) shown: u64,
}

/// The most crashes in one life.
const CRASHES: u64 = 6;

/// What models are like; most say anything.
const MOODS: [Mood; 10] = [
    Mood::Any,
    Mood::Any,
    Mood::Any,
    Mood::Any,
    Mood::Any,
    Mood::Any,
    Mood::Any,
    Mood::Stubborn,
    Mood::Confused,
    Mood::Unfit,
];

impl Life {
    pub(super) fn reason(&self) -> &'static str {
        let State::Done(done) = &self.fold.state else { panic!("it is not over") };
        done.outcome.reason.name()
    }

    /// Lives the life of a seed.
    pub(super) fn live(seed: u64, trouble: Trouble) -> Self {
        let chance = Chance::new(seed);
        let mood = chance.of(&MOODS);
        let rules = rules(&chance, mood);
        let disk = Shared::default();
        let done = Done::default();
        let shown = Arc::new(Mutex::new(0));
        let (mut fold, mut first) = begin(&rules);
        let (mut at, mut crashes) = (Time::START, 0);
        let fold = loop {
            // Whoever has died often enough is left alone.
            let trouble = if crashes == CRASHES { Trouble::None } else { trouble };
            let world = World {
                mood,
                chance: chance.clone(),
                disk: disk.clone(),
                done: Arc::clone(&done),
                shown: Arc::clone(&shown),
                trouble,
            };
            let run = catch_unwind(AssertUnwindSafe(|| world.run(fold, first, at)));
            match run {
                Ok(fold) => break fold,
                Err(panic) if panic.is::<Crash>() => crashes += 1,
                Err(panic) => resume_unwind(panic),
            }
            disk.crash(&chance);
            (fold, at) = replay(&rules, &disk);
            let resumption = Resumption {
                rules: rules.clone(),
                found: found(&fold),
                opening: if chance.once_in(2) { Opening::GoOn } else { Opening::Message },
            };
            disk.add_durably(at, Kept::Resumed(Box::new(resumption.clone())));
            (fold, first) = fold.resume(at, resumption);
        };
        let (stored, _) = replay(&rules, &disk);
        if trouble == Trouble::None {
            assert!(stored == fold, "the journal folds to something else than what was lived");
        }
        let disk = disk.lock();
        let shown = *shown.lock().unwrap();
        Self { fold, records: disk.records.clone(), crashes, uses: disk.uses, shown }
    }
}

fn rules(chance: &Chance, mood: Mood) -> Rules {
    fn some<T>(chance: &Chance, many: u64, value: T) -> Option<T> {
        chance.once_in(many).then_some(value)
    }
    let rules = Rules::default();
    Rules {
        seed: chance.next(),
        limits: Limits {
            max_steps: u32::try_from(chance.below(25)).unwrap(),
            budget: some(chance, 4, Micros(chance.below(5_000_000))),
            max_tokens: some(chance, 6, Tokens(chance.below(60_000))),
            timeout: some(chance, 3, Span::secs(chance.below(7_200))),
            step_timeout: some(chance, 3, Span::secs(1 + chance.below(300))),
            warn_at: some(chance, 4, Micros(1_000)),
        },
        price: some(
            chance,
            2,
            Price {
                input: 9_000_000,
                output: 9_000_000,
                cached_input: 0,
                cache_write: 0,
                long: None,
            },
        ),
        context: architect::model::ContextRules {
            window: if chance.once_in(3) { Tokens(2_000) } else { rules.context.window },
            ..rules.context
        },
        checked: chance.once_in(2) || mood == Mood::Unfit,
        ..rules
    }
}

fn begin(rules: &Rules) -> (Fold, Outcomes) {
    let task = Item::user(Origin::Task, "the task");
    Fold::start(rules.clone(), Conversation::new(100), task)
}

/// Folds what is on the disk.
fn replay(rules: &Rules, disk: &Shared) -> (Fold, Time) {
    let (mut fold, _) = begin(rules);
    let mut last = Time::START;
    for (at, kept) in &disk.lock().records {
        last = last.max(*at);
        fold = match kept {
            Kept::Event(event) => fold.accept(*at, event.clone()).0,
            Kept::Resumed(resumption) => fold.resume(*at, Resumption::clone(resumption)).0,
            Kept::Partial | Kept::Ended => fold,
        };
    }
    (fold, last)
}

/// Finds out about the calls that were running: what may not happen twice is in doubt.
fn found(fold: &Fold) -> Vec<Found> {
    let State::Executing(executing) = &fold.state else { return Vec::new() };
    let running = executing.calls.iter().filter(|call| matches!(call.slot, Slot::Running { .. }));
    let doubtful = running.filter(|call| &*call.call.name != "read");
    let found = doubtful.map(|call| Found {
        call: call.call.id.clone(),
        result: ToolResult::new(call.call.id.clone(), ToolStatus::InDoubt, "nobody knows"),
    });
    found.collect()
}

/// A process.
struct World {
    mood: Mood,
    chance: Chance,
    disk: Shared,
    done: Done,
    shown: Arc<Mutex<u64>>,
    trouble: Trouble,
}

impl World {
    fn run(self, fold: Fold, first: Outcomes, at: Time) -> Fold {
        let Self { mood, chance, disk, done, shown, trouble } = self;
        let tools = SimulatedTools { chance: chance.clone(), disk: disk.clone(), done };
        let ports = Ports {
            tools: Arc::new(tools),
            journal: Box::new(SimulatedJournal {
                disk: disk.clone(),
                chance: chance.clone(),
                trouble,
            }),
            observer: Box::new(Inspector { before: None, shown, trouble, chance: chance.clone() }),
            mailbox: Box::new(SimulatedMail(chance.clone())),
            checks: Arc::new(SimulatedChecks(chance.clone(), mood)),
            ..Ports::new(Box::new(SimulatedModel { mood, chance: chance.clone(), disk }))
        };
        let brief = Brief { system: "be brief".into(), tools: [].into(), schema: None };
        let hands = SimulatedHands::new(at, chance, trouble == Trouble::Chance);
        Driver::new(hands, ports, brief, fold).run(first)
    }
}

/// Takes every event in a second time, step by step, and looks at each step.
struct Inspector {
    before: Option<Fold>,
    shown: Arc<Mutex<u64>>,
    trouble: Trouble,
    chance: Chance,
}

impl Inspector {
    fn inspect(&mut self, at: Time, event: &Event, after: &Fold) {
        let mut state = self.before.take().expect("a run begins before anything happens").state;
        let steps = |state: State, event: Event| {
            let next = step(state.clone(), event.clone());
            let broken = invariants::broken(&state, &event, &next);
            assert!(broken.is_empty(), "{broken:#?}");
            next.state
        };
        while !matches!(state, State::Done(_))
            && (state.run().now < at
                || architect::machine::deadline(&state).is_some_and(|due| due.at <= at))
        {
            state = steps(state, Event::Tick { now: at });
        }
        if !matches!(event, Event::Tick { .. }) {
            state = steps(state, event.clone());
        }
        assert!(state == after.state, "the driver stands somewhere else than its events lead to");
        if let (Event::Vetted { verdict: Verdict::Abort, .. }, state) = (event, &after.state) {
            assert!(matches!(state, State::Done(_)));
        }
        self.before = Some(after.clone());
    }
}

impl Observer for Inspector {
    fn see(&mut self, seen: &Seen<'_>) -> Result<(), Gone> {
        match seen {
            Seen::Begun { fold, .. } => self.before = Some((*fold).clone()),
            Seen::Event { at, event, fold, .. } => self.inspect(*at, event, fold),
            Seen::Ended { fold, .. } => assert!(matches!(fold.state, State::Done(_))),
            Seen::Delta { .. } | Seen::Notice { .. } => {}
        }
        let nth = {
            let mut shown = self.shown.lock().unwrap();
            *shown += 1;
            *shown - 1
        };
        let leaves = match self.trouble {
            Trouble::ReaderLeaves(at) => nth >= at,
            Trouble::Chance => self.chance.once_in(2_000),
            _ => false,
        };
        if leaves { Err(Gone) } else { Ok(()) }
    }
}
