//! All orders in which threads can hand over what they have done: of three calls that are judged and run side by side, with an
//! interrupt at any moment or none. Whatever the order, the results are in the order of the calls, and the journal folds to
//! where the run stood.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use architect::machine::{Conversation, Deadline, Event, Fold, Intent, State};
use architect::model::{
    Access, Fault, Finish, Item, Origin, Part, Reply, Rules, Signal, Span, Time, ToolCall,
    ToolResult, ToolStatus, Usage,
};
use architect::port::{
    Ask, Clock, Delta, Job, Model, ModelCall, Scope, Sleep, ToolSpec, Toolbox, Vetted,
};
use architect::runner::{Arrival, Brief, Driver, Hands, Ports, VirtualClock, Work};

use super::chance::Chance;
use super::journal::{Kept, Shared, SimulatedJournal};
use super::life::{Count, Inspector, Trouble};

/// Decisions, one after the other: which of how many.
#[derive(Clone, Default)]
struct Plan(Rc<RefCell<Decisions>>);

#[derive(Default)]
struct Decisions {
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Plan {
    /// Decides between so many: as it was decided before, and then always for the first.
    fn decide(&self, many: usize) -> usize {
        let mut plan = self.0.borrow_mut();
        let at = plan.at;
        plan.at += 1;
        if at == plan.taken.len() {
            plan.taken.push((0, many));
        }
        assert_eq!(plan.taken[at].1, many, "the same decisions lead somewhere else");
        plan.taken[at].0
    }

    /// Changes the last decision that can be changed; false when all were gone through.
    fn next(&self) -> bool {
        let mut plan = self.0.borrow_mut();
        plan.at = 0;
        while let Some((chosen, many)) = plan.taken.pop() {
            if chosen + 1 < many {
                plan.taken.push((chosen + 1, many));
                return true;
            }
        }
        false
    }
}

/// Hands whose work arrives in the order of a plan. No time passes.
struct Planned {
    plan: Plan,
    clock: Arc<VirtualClock>,
    arrived: Vec<Arrival>,
    may_interrupt: bool,
}

struct NoSleep;

impl Sleep for NoSleep {
    fn sleep(&self, _: Span, cancel: &architect::port::Cancel) -> bool {
        cancel.is_cancelled()
    }
}

impl Planned {
    /// Returns one of the arrivals, or the interrupt.
    fn one(&mut self, chosen: usize) -> Arrival {
        if chosen < self.arrived.len() {
            return self.arrived.remove(chosen);
        }
        self.may_interrupt = false;
        Arrival::Event(Event::Interrupt { signal: Signal::Interrupt })
    }

    fn many(&self) -> usize {
        self.arrived.len() + usize::from(self.may_interrupt)
    }
}

impl Hands for Planned {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    fn start(&mut self, work: Work) {
        let scope = Scope::new(work.cancel, Arc::new(NoSleep));
        let last = (work.run)(&scope, &|_| {});
        self.arrived.push(last);
    }

    fn wait(&mut self, _: Option<Deadline>) -> Option<Arrival> {
        assert!(self.many() > 0, "it waits for nothing");
        let chosen = self.plan.decide(self.many());
        Some(self.one(chosen))
    }

    /// What has arrived may be taken in together with what came before it, or later.
    fn ready(&mut self) -> Option<Arrival> {
        let chosen = self.plan.decide(self.many() + 1);
        chosen.checked_sub(1).map(|chosen| self.one(chosen))
    }

    fn settle(&mut self, _: Span) -> bool {
        true
    }
}

/// A model that makes these calls, and is done.
struct Asks(Vec<&'static str>);

struct Says(Reply);

impl Model for Asks {
    fn prepare(&mut self, _: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let call = |name: &str| Part::Call(ToolCall::new(name.into(), name, "{}"));
        let calls: Vec<Part> = self.0.drain(..).map(call).collect();
        let (parts, finish) = match calls.is_empty() {
            true => (vec![Part::Text("done".into())], Finish::Stop),
            false => (calls, Finish::ToolCalls),
        };
        let (usage, model) = (Usage::default(), None);
        Ok(Box::new(Says(Reply { parts: parts.into(), finish, usage, model })))
    }
}

impl ModelCall for Says {
    fn run(self: Box<Self>, _: &Scope, _: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        Ok(self.0)
    }
}

/// Tools that touch what the first letter of their name says: `r` reads a file, `w` writes it, `x` may do anything.
struct Tools;

struct Doing(ToolCall);

impl Toolbox for Tools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn access(&self, call: &ToolCall) -> Access {
        match call.name.as_bytes()[0] {
            b'r' => Access::read("file"),
            b'w' => Access::write("file"),
            _ => Access::Exclusive,
        }
    }

    fn vet(&self, call: &ToolCall, _: &Scope) -> Vetted {
        let is_pure = call.name.starts_with('r');
        Vetted::Cleared {
            job: Box::new(Doing(call.clone())),
            limit: Span::secs(60),
            intent: if is_pure { Intent::Pure } else { Intent::Opaque },
            grounds: "".into(),
        }
    }
}

impl Job for Doing {
    fn run(self: Box<Self>, _: &Scope) -> ToolResult {
        ToolResult::new(self.0.id, ToolStatus::Ok, &*self.0.name)
    }
}

fn begin() -> (Fold, architect::machine::Outcomes) {
    Fold::start(Rules::default(), Conversation::new(0), Item::user(Origin::Task, "task"))
}

/// Lives one order; returns how the run ended, and in which order calls were settled.
fn live(plan: &Plan, calls: &[&'static str], may_interrupt: bool) -> (&'static str, Vec<String>) {
    let (disk, chance) = (Shared::default(), Chance::new(0));
    let trouble = Trouble::None;
    let (shown, before) = (Count::default(), None);
    let ports = Ports {
        tools: Arc::new(Tools),
        journal: Box::new(SimulatedJournal { disk: disk.clone(), chance: chance.clone(), trouble }),
        observer: Box::new(Inspector { before, shown, trouble, chance }),
        ..Ports::new(Box::new(Asks(calls.to_vec())))
    };
    let brief = Brief { system: "".into(), tools: [].into(), schema: None };
    let clock = Arc::new(VirtualClock::default());
    let hands = Planned { plan: plan.clone(), clock, arrived: Vec::new(), may_interrupt };
    let (fold, first) = begin();
    let fold = Driver::new(hands, ports, brief, fold).run(first);
    let State::Done(done) = &fold.state else { panic!("it is not over") };
    for entry in fold.conversation.entries() {
        let Item::Exchange(exchange) = &entry.item else { continue };
        let answered: Vec<&str> =
            exchange.results().iter().map(|result| result.call.as_str()).collect();
        assert_eq!(answered, calls, "results are in the order of the calls");
    }
    let disk = disk.lock();
    let (mut stored, _) = begin();
    let mut settled = Vec::new();
    for (at, kept) in &disk.records {
        let Kept::Event(event) = kept else { continue };
        if let Event::Settled { result, .. } = event {
            settled.push(result.call.as_str().to_owned());
        }
        stored = stored.accept(Time(at.0), event.clone()).0;
    }
    assert!(stored == fold, "the journal folds to something else than what was lived");
    (done.outcome.reason.name(), settled)
}

/// Goes through all orders; returns how many there are, how runs ended, and in which orders calls were settled.
fn all(calls: &[&'static str], may_interrupt: bool) -> (u32, BTreeSet<&'static str>, usize) {
    let (plan, mut count) = (Plan::default(), 0);
    let (mut reasons, mut orders) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let (reason, settled) = live(&plan, calls, may_interrupt);
        reasons.insert(reason);
        if reason == "llm_done" {
            orders.insert(settled);
        }
        count += 1;
        assert!(count < 200_000, "there are too many orders");
        if !plan.next() {
            return (count, reasons, orders.len());
        }
    }
}

#[test]
fn every_order_of_three_calls_leads_to_the_same_results() {
    let done = BTreeSet::from(["llm_done"]);
    // Calls that do not touch each other end in any order, others in the order in which they were made.
    for (calls, orders, least) in
        [(["r1", "r2", "r3"], 6, 500), (["r1", "w2", "r3"], 1, 1), (["r1", "r2", "x3"], 2, 10)]
    {
        let (count, reasons, found) = all(&calls, false);
        assert_eq!((reasons, found), (done.clone(), orders), "{calls:?}");
        println!("{calls:?}: {count} ways");
        assert!(count >= least, "{calls:?}: only {count} ways");
    }
}

#[test]
fn an_interrupt_at_any_moment_of_any_order_settles_every_call() {
    for calls in [["r1", "r2"], ["w1", "r2"], ["x1", "x2"]] {
        let (count, reasons, _) = all(&calls, true);
        assert_eq!(reasons, BTreeSet::from(["llm_done", "user_interrupt"]), "{calls:?}");
        println!("{calls:?}, interrupted: {count} ways");
        assert!(count > 10, "{calls:?}: only {count} ways");
    }
}
