//! All orders in which the effects of up to three calls can complete, with an interrupt at any moment or none. The results
//! are always in the order of the calls, and the journal replays to the state of the run.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use architect::machine::{CallIntent, Conversation, Deadline, Event, Machine, State};
use architect::port::Clock;
use architect::runner::{
    Driver, DriverInput, EffectTask, Executor, Ports, RequestContext, VirtualClock,
};
use architect::types::{
    CallAccess, ConversationItem, MessageOrigin, RunRules, RunTime, Signal, TimeSpan,
};

use crate::kit::effect::scope_without_sleep;
use crate::kit::model::{call, reply, scripted, text};
use crate::kit::tools::{FakeTools, ok};

use super::directed_fault::DirectedFault;
use super::journal::{SharedDisk, SimulatedJournal, StoredRecord};
use super::pairs::SharedPairs;
use super::rng::Rng;
use super::session_life::{Counter, InjectedFault, Inspector};

/// A list of decisions, each the choice of one alternative, with the number of alternatives.
#[derive(Clone, Default)]
struct Schedule(Rc<RefCell<Decisions>>);

#[derive(Default)]
struct Decisions {
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Schedule {
    /// Makes the next decision: the recorded one, or the first alternative if there is none yet.
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

    /// Changes the last decision that has another alternative; returns false after the last schedule.
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

/// An executor whose tasks complete in the order of a schedule. No time passes.
struct ScheduledExecutor {
    schedule: Schedule,
    clock: Arc<VirtualClock>,
    arrived: Vec<DriverInput>,
    may_interrupt: bool,
}

impl ScheduledExecutor {
    /// Returns one of the arrivals, or the interrupt.
    fn one(&mut self, chosen: usize) -> DriverInput {
        if chosen < self.arrived.len() {
            return self.arrived.remove(chosen);
        }
        self.may_interrupt = false;
        DriverInput::Event(Event::Interrupt { signal: Signal::Interrupt })
    }

    fn many(&self) -> usize {
        self.arrived.len() + usize::from(self.may_interrupt)
    }
}

impl Executor for ScheduledExecutor {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    fn start(&mut self, work: EffectTask) {
        let scope = scope_without_sleep(&work.cancel);
        let last = (work.run)(&scope, &|_| {});
        self.arrived.push(last);
    }

    fn wait_input(&mut self, _: Option<Deadline>) -> Option<DriverInput> {
        assert!(self.many() > 0, "it waits for nothing");
        let chosen = self.schedule.decide(self.many());
        Some(self.one(chosen))
    }

    /// Takes in an arrived input together with those before it, or leaves it for later.
    fn try_input(&mut self) -> Option<DriverInput> {
        let chosen = self.schedule.decide(self.many() + 1);
        chosen.checked_sub(1).map(|chosen| self.one(chosen))
    }

    fn wait_idle(&mut self, _: TimeSpan) -> bool {
        true
    }
}

/// Returns tools with an access by the first letter of their name: `r` reads a file, `w` writes it, `x` may do
/// anything.
fn tools() -> FakeTools {
    FakeTools::new(&[], |call, _| ok(call, &call.name))
        .with_access(|call| match call.name.as_bytes()[0] {
            b'r' => CallAccess::read("file"),
            b'w' => CallAccess::write("file"),
            _ => CallAccess::Exclusive,
        })
        .with_authorization(|call| match call.name.starts_with('r') {
            true => Ok(CallIntent::ReadOnly),
            false => Ok(CallIntent::Opaque),
        })
}

fn begin() -> (Machine, architect::machine::MachineOutput) {
    Machine::start(
        RunRules::default(),
        Conversation::new(0),
        ConversationItem::user(MessageOrigin::Task, "task"),
    )
}

/// Runs one order; returns how the run ended, and in which order the calls completed.
fn simulate(
    plan: &Schedule,
    calls: &[&'static str],
    may_interrupt: bool,
) -> (&'static str, Vec<String>) {
    let (disk, chance) = (SharedDisk::default(), Rng::new(0));
    let trouble = InjectedFault::None;
    let (shown, before, directed) = (Counter::default(), None, DirectedFault::default());
    let wanted = calls.iter().map(|name| call(name, name, "{}"));
    let ports = Ports {
        tools: Arc::new(tools()),
        journal: Box::new(SimulatedJournal {
            disk: disk.clone(),
            chance: chance.clone(),
            trouble,
            directed: directed.clone(),
        }),
        observer: Box::new(Inspector {
            before,
            shown,
            trouble,
            chance,
            directed: directed.clone(),
            pairs: SharedPairs::default(),
        }),
        ..Ports::new(scripted([reply(wanted).into(), text("done").into()]))
    };
    let context = RequestContext { system: "".into(), tools: [].into(), schema: None };
    let clock = Arc::new(VirtualClock::default());
    let executor =
        ScheduledExecutor { schedule: plan.clone(), clock, arrived: Vec::new(), may_interrupt };
    let (machine, first) = begin();
    let machine = Driver::new(Box::new(executor), ports, context, machine).run(first);
    let State::Done(done) = &machine.state else { panic!("it is not over") };
    for entry in machine.conversation.entries() {
        let ConversationItem::Exchange(exchange) = &entry.item else { continue };
        let order: Vec<&str> =
            exchange.results().iter().map(|result| result.call.as_str()).collect();
        assert_eq!(order, calls, "results are in the order of the calls");
    }
    let disk = disk.lock();
    let (mut stored, _) = begin();
    let mut completed = Vec::new();
    for (at, stored_record) in &disk.records {
        let StoredRecord::Event(event, _) = stored_record else { continue };
        if let Event::ToolCompleted { result, .. } = event {
            completed.push(result.call.as_str().to_owned());
        }
        stored = stored.handle(RunTime(at.0), event.clone()).0;
    }
    assert!(stored == machine, "the journal replays to another state");
    (done.outcome.reason.name(), completed)
}

/// Runs all orders; returns how many there are, how the runs ended, and in how many orders the calls completed.
fn all(calls: &[&'static str], may_interrupt: bool) -> (u32, BTreeSet<&'static str>, usize) {
    let (plan, mut count) = (Schedule::default(), 0);
    let (mut reasons, mut orders) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let (reason, completed) = simulate(&plan, calls, may_interrupt);
        reasons.insert(reason);
        if reason == "llm_done" {
            orders.insert(completed);
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
fn an_interrupt_at_any_moment_of_any_order_completes_every_call() {
    for calls in [["r1", "r2"], ["w1", "r2"], ["x1", "x2"]] {
        let (count, reasons, _) = all(&calls, true);
        assert_eq!(reasons, BTreeSet::from(["llm_done", "user_interrupt"]), "{calls:?}");
        println!("{calls:?}, interrupted: {count} ways");
        assert!(count > 10, "{calls:?}: only {count} ways");
    }
}
