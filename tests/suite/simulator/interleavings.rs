//! All orders in which threads can hand over what they have done: of three calls that are judged and run side by side, with an
//! interrupt at any moment or none. Whatever the order, the results are in the order of the calls, and the journal folds to
//! where the run stood.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use architect::machine::{CallIntent, Conversation, Deadline, Event, Machine, State};
use architect::model::{
    CallAccess, ConversationItem, Fault, MessageOrigin, Reply, ReplyFinish, ReplyPart, RunRules,
    RunTime, Signal, TimeSpan, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{
    ApprovedCall, AuthorizationOutcome, Clock, EffectContext, Model, ModelCall, ModelRequest,
    PreparedCall, ReplyDelta, Sleep, ToolSpec, Toolbox,
};
use architect::runner::{
    Driver, DriverInput, EffectTask, Executor, Ports, RequestContext, VirtualClock,
};

use super::journal::{SharedDisk, SimulatedJournal, StoredRecord};
use super::rng::Rng;
use super::session_life::{Counter, InjectedFault, Inspector};

/// Decisions, one after the other: which of how many.
#[derive(Clone, Default)]
struct Schedule(Rc<RefCell<Decisions>>);

#[derive(Default)]
struct Decisions {
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Schedule {
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
struct ScheduledExecutor {
    schedule: Schedule,
    clock: Arc<VirtualClock>,
    arrived: Vec<DriverInput>,
    may_interrupt: bool,
}

struct NoSleep;

impl Sleep for NoSleep {
    fn sleep(&self, _: TimeSpan, cancel: &architect::port::CancellationToken) -> bool {
        cancel.is_cancelled()
    }
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
        let scope = EffectContext::new(work.cancel, Arc::new(NoSleep));
        let last = (work.run)(&scope, &|_| {});
        self.arrived.push(last);
    }

    fn wait_input(&mut self, _: Option<Deadline>) -> Option<DriverInput> {
        assert!(self.many() > 0, "it waits for nothing");
        let chosen = self.schedule.decide(self.many());
        Some(self.one(chosen))
    }

    /// What has arrived may be taken in together with what came before it, or later.
    fn try_input(&mut self) -> Option<DriverInput> {
        let chosen = self.schedule.decide(self.many() + 1);
        chosen.checked_sub(1).map(|chosen| self.one(chosen))
    }

    fn wait_idle(&mut self, _: TimeSpan) -> bool {
        true
    }
}

/// A model that makes these calls, and is done.
struct CallingModel(Vec<&'static str>);

struct ImmediateReply(Reply);

impl Model for CallingModel {
    fn prepare(&mut self, _: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let call = |name: &str| ReplyPart::Call(ToolCall::new(name.into(), name, "{}"));
        let calls: Vec<ReplyPart> = self.0.drain(..).map(call).collect();
        let (parts, finish) = match calls.is_empty() {
            true => (vec![ReplyPart::Text("done".into())], ReplyFinish::Stop),
            false => (calls, ReplyFinish::ToolCalls),
        };
        let (usage, model) = (Usage::default(), None);
        Ok(Box::new(ImmediateReply(Reply { parts: parts.into(), finish, usage, model })))
    }
}

impl ModelCall for ImmediateReply {
    fn run(
        self: Box<Self>,
        _: &EffectContext,
        _: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        Ok(self.0)
    }
}

/// Tools that touch what the first letter of their name says: `r` reads a file, `w` writes it, `x` may do anything.
#[derive(Clone)]
struct LetterTools;

struct LetterJob(ToolCall);

impl Toolbox for LetterTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let (tools, call) = (self.clone(), call.clone());
        <dyn PreparedCall>::from_fn(tools.access(&call), move |scope| tools.authorize(&call, scope))
    }
}

impl LetterTools {
    fn access(&self, call: &ToolCall) -> CallAccess {
        match call.name.as_bytes()[0] {
            b'r' => CallAccess::read("file"),
            b'w' => CallAccess::write("file"),
            _ => CallAccess::Exclusive,
        }
    }

    fn authorize(&self, call: &ToolCall, _: &EffectContext) -> AuthorizationOutcome {
        let is_pure = call.name.starts_with('r');
        AuthorizationOutcome::Approved {
            call: Box::new(LetterJob(call.clone())),
            timeout: TimeSpan::from_secs(60),
            intent: if is_pure { CallIntent::ReadOnly } else { CallIntent::Opaque },
            reason: "".into(),
        }
    }
}

impl ApprovedCall for LetterJob {
    fn run(self: Box<Self>, _: &EffectContext) -> ToolResult {
        ToolResult::new(self.0.id, ToolStatus::Ok, &*self.0.name)
    }
}

fn begin() -> (Machine, architect::machine::MachineOutput) {
    Machine::start(
        RunRules::default(),
        Conversation::new(0),
        ConversationItem::user(MessageOrigin::Task, "task"),
    )
}

/// Lives one order; returns how the run ended, and in which order calls were settled.
fn simulate(
    plan: &Schedule,
    calls: &[&'static str],
    may_interrupt: bool,
) -> (&'static str, Vec<String>) {
    let (disk, chance) = (SharedDisk::default(), Rng::new(0));
    let trouble = InjectedFault::None;
    let (shown, before) = (Counter::default(), None);
    let ports = Ports {
        tools: Arc::new(LetterTools),
        journal: Box::new(SimulatedJournal { disk: disk.clone(), chance: chance.clone(), trouble }),
        observer: Box::new(Inspector { before, shown, trouble, chance }),
        ..Ports::new(Box::new(CallingModel(calls.to_vec())))
    };
    let brief = RequestContext { system: "".into(), tools: [].into(), schema: None };
    let clock = Arc::new(VirtualClock::default());
    let hands =
        ScheduledExecutor { schedule: plan.clone(), clock, arrived: Vec::new(), may_interrupt };
    let (fold, first) = begin();
    let fold = Driver::new(hands, ports, brief, fold).run(first);
    let State::Done(done) = &fold.state else { panic!("it is not over") };
    for entry in fold.conversation.entries() {
        let ConversationItem::Exchange(exchange) = &entry.item else { continue };
        let answered: Vec<&str> =
            exchange.results().iter().map(|result| result.call.as_str()).collect();
        assert_eq!(answered, calls, "results are in the order of the calls");
    }
    let disk = disk.lock();
    let (mut stored, _) = begin();
    let mut settled = Vec::new();
    for (at, kept) in &disk.records {
        let StoredRecord::Event(event) = kept else { continue };
        if let Event::ToolCompleted { result, .. } = event {
            settled.push(result.call.as_str().to_owned());
        }
        stored = stored.handle(RunTime(at.0), event.clone()).0;
    }
    assert!(stored == fold, "the journal folds to something else than what was lived");
    (done.outcome.reason.name(), settled)
}

/// Goes through all orders; returns how many there are, how runs ended, and in which orders calls were settled.
fn all(calls: &[&'static str], may_interrupt: bool) -> (u32, BTreeSet<&'static str>, usize) {
    let (plan, mut count) = (Schedule::default(), 0);
    let (mut reasons, mut orders) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let (reason, settled) = simulate(&plan, calls, may_interrupt);
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
