//! A session from its first run over crashes and resumes to its end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use architect::hooks::{HookedAnswerChecks, with_hooks};
use architect::machine::{
    Authorization, CallState, Conversation, Event, Fingerprint, Machine, MachineOutput,
    RecoveredCall, ResumePrompt, Resumption, RunBounds, State, step,
};
use architect::port::{Disconnected, Observer, RunEvent};
use architect::runner::{Driver, Ports, RequestContext};
use architect::types::{
    ConversationItem, MessageOrigin, MicroUsd, ModelRules, Price, RetryBackoff, RunLimits,
    RunRules, RunTime, TimeSpan, Tokens, ToolResult, ToolStatus,
};

use super::directed_fault::DirectedFault;
use super::executor::{Crash, SimulatedExecutor};
use super::hooks::hooks;
use super::invariants;
use super::journal::{SharedDisk, SimulatedJournal, StoredRecord};
use super::model::{ModelBehavior, SimulatedModel};
use super::pairs::{SharedPairs, TakenPairs, transition_number};
use super::rng::Rng;
use super::tools::{
    AppliedCalls, SimulatedCheckpoints, SimulatedChecks, SimulatedQueue, SimulatedServer,
    SimulatedTools,
};

/// Faults besides those of the model and the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InjectedFault {
    /// None.
    None,
    /// Anything, at random.
    Chance,
    /// The Nth use of the journal fails.
    FailsOnce(u64),
    /// Every use of the journal fails, from the Nth on.
    FailsFrom(u64),
    /// The process dies at the Nth use of the journal.
    DiesAt(u64),
    /// The reader of the output is gone from the Nth output on.
    ReaderLeaves(u64),
    /// The Nth task panics.
    BreaksDownOnce(u64),
    /// Every task panics, from the Nth on.
    BreaksDownFrom(u64),
    /// The Nth task returns after it was abandoned.
    HangsOnce(u64),
    /// Every task returns after it was abandoned, from the Nth on.
    HangsFrom(u64),
    /// The process dies after the Nth task has ended, before its result is handled.
    DiesAfter(u64),
}

impl InjectedFault {
    /// Returns the fault of this name, at the Nth occasion.
    pub(super) fn from_name(name: &str, nth: u64) -> Option<Self> {
        Some(match name {
            "None" => Self::None,
            "Chance" => Self::Chance,
            "FailsOnce" => Self::FailsOnce(nth),
            "FailsFrom" => Self::FailsFrom(nth),
            "DiesAt" => Self::DiesAt(nth),
            "ReaderLeaves" => Self::ReaderLeaves(nth),
            "BreaksDownOnce" => Self::BreaksDownOnce(nth),
            "BreaksDownFrom" => Self::BreaksDownFrom(nth),
            "HangsOnce" => Self::HangsOnce(nth),
            "HangsFrom" => Self::HangsFrom(nth),
            "DiesAfter" => Self::DiesAfter(nth),
            _ => return None,
        })
    }
}

/// A session that is over.
pub(super) struct SessionLife {
    pub(super) fold: Machine,
    pub(super) records: Vec<(RunTime, StoredRecord)>,
    pub(super) crashes: u64,
    /// The number of continuations after its end.
    pub(super) continuations: u64,
    pub(super) has_failed_disk: bool,
    pub(super) pairs: TakenPairs,
    pub(super) uses: u64,
    pub(super) shown: u64,
    /// The number of tasks that were started.
    pub(super) works: u64,
}

/// A count over all processes of a session.
#[derive(Clone, Default)]
pub(super) struct Counter(Arc<Mutex<u64>>);

impl Counter {
    /// Returns the count before this occurrence.
    pub(super) fn next(&self) -> u64 {
        let mut count = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *count += 1;
        *count - 1
    }

    pub(super) fn so_far(&self) -> u64 {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The most crashes in one session.
const MAX_CRASHES: u64 = 6;

/// The most continuations of a session after its end.
const MAX_CONTINUATIONS: u64 = 1;

pub(super) const PRICE: Price = Price {
    input: 9_000_000,
    output: 9_000_000,
    cached_input: 0,
    cache_write: 0,
    long_input: None,
};

/// The behaviours of models; most return anything.
const BEHAVIORS: [ModelBehavior; 11] = [
    ModelBehavior::Random,
    ModelBehavior::Random,
    ModelBehavior::Random,
    ModelBehavior::Random,
    ModelBehavior::Working,
    ModelBehavior::Working,
    ModelBehavior::Overflowing,
    ModelBehavior::Repeating,
    ModelBehavior::InvalidCalls,
    ModelBehavior::TruncatedCalls,
    ModelBehavior::SchemaViolating,
];

impl SessionLife {
    pub(super) fn reason(&self) -> &'static str {
        let State::Done(done) = &self.fold.state else { panic!("it is not over") };
        done.outcome.reason.name()
    }

    /// Runs the session that these random numbers determine, with a disk that outlives it.
    pub(super) fn simulate(chance: &Rng, trouble: InjectedFault, disk: &SharedDisk) -> Self {
        let mood = chance.of(&BEHAVIORS);
        let rules = rules(chance, mood);
        let mut newest_rules = rules.clone();
        let has_checkpoints = chance.once_in(2);
        disk.lock().rules = Some(rules.clone());
        let done = AppliedCalls::default();
        let (shown, works, server) =
            (Counter::default(), Counter::default(), SimulatedServer::default());
        let pairs = SharedPairs::default();
        let directed = match trouble {
            InjectedFault::Chance => DirectedFault::random(chance),
            _ => DirectedFault::default(),
        };
        let (mut fold, mut first) = begin(&rules);
        let (mut at, mut crashes, mut continuations) = (RunTime::START, 0, 0);
        let fold = loop {
            // After enough crashes there are no more.
            let trouble = if crashes == MAX_CRASHES { InjectedFault::None } else { trouble };
            let world = SimulatedProcess {
                behavior: mood,
                chance: chance.clone(),
                disk: disk.clone(),
                done: Arc::clone(&done),
                shown: shown.clone(),
                works: works.clone(),
                server: server.clone(),
                pairs: pairs.clone(),
                directed: directed.clone(),
                trouble,
                has_checkpoints,
                is_subagent: false,
            };
            let run = catch_unwind(AssertUnwindSafe(|| world.run(fold, first, at)));
            match run {
                Ok(_)
                    if trouble == InjectedFault::Chance
                        && continuations < MAX_CONTINUATIONS
                        && chance.once_in(6) =>
                {
                    continuations += 1;
                    newest_rules.limits.max_steps += u32::try_from(chance.below(9)).unwrap();
                }
                Ok(fold) => break fold,
                Err(panic) if panic.is::<Crash>() => crashes += 1,
                Err(panic) => resume_unwind(panic),
            }
            disk.crash(chance);
            (fold, at) = replay(&rules, disk);
            let resumption = Resumption {
                rules: newest_rules.clone(),
                recovered: resolve_running_calls(&fold),
                prompt: if chance.once_in(2) {
                    ResumePrompt::Continue
                } else {
                    ResumePrompt::FromUser
                },
                received: Tokens::MAX,
            };
            disk.add_durably(at, StoredRecord::Resumed(Box::new(resumption.clone())));
            (fold, first) = fold.resume(at, resumption);
        };
        let (stored, _) = replay(&rules, disk);
        if !disk.lock().has_ever_failed {
            assert!(stored == fold, "the journal replays to another state than that of the run");
        }
        keeps_limits(&newest_rules, &fold);
        if crashes + continuations == 0 {
            keeps_bounds(&rules, &fold);
        }
        let disk = disk.lock();
        assert!(disk.broken.is_none(), "{:?}", disk.broken);
        Self {
            fold,
            records: disk.records.clone(),
            crashes,
            continuations,
            has_failed_disk: disk.has_ever_failed,
            pairs: pairs.taken(),
            uses: disk.uses,
            shown: shown.so_far(),
            works: works.so_far(),
        }
    }
}

/// Checks the usage of a run. A provider that reports no more than was reserved never exceeds a limit.
fn keeps_limits(rules: &RunRules, machine: &Machine) {
    let (limits, run) = (&rules.limits, machine.state.run());
    let (used, took) = (run.used, run.now.since(run.started_at));
    assert!(limits.budget.is_none_or(|most| used.cost <= most), "it costs more than its budget");
    assert!(limits.max_tokens.is_none_or(|most| used.tokens <= most), "it uses too many tokens");
    assert!(limits.timeout.is_none_or(|most| took <= most), "it takes longer than its limit");
}

/// Checks the bounds that are derived from the rules, which hold for one process.
fn keeps_bounds(rules: &RunRules, machine: &Machine) {
    let (bounds, run) = (RunBounds::new(rules), machine.state.run());
    assert!(u64::from(run.steps) <= bounds.steps, "{} steps: {bounds:?}", run.steps);
    assert!(u64::from(run.model_calls) <= bounds.calls, "{} calls: {bounds:?}", run.model_calls);
    let requests = u64::from(run.requests);
    assert!(bounds.requests.is_none_or(|most| requests <= most), "{requests}: {bounds:?}");
}

fn rules(chance: &Rng, mood: ModelBehavior) -> RunRules {
    fn some<T>(chance: &Rng, many: u64, value: T) -> Option<T> {
        chance.once_in(many).then_some(value)
    }
    let rules = RunRules::default();
    RunRules {
        seed: chance.next(),
        limits: RunLimits {
            max_steps: u32::try_from(chance.below(25)).unwrap(),
            budget: some(chance, 4, MicroUsd(chance.below(5_000_000))),
            max_tokens: some(chance, 6, Tokens(chance.below(60_000))),
            timeout: some(chance, 3, TimeSpan::from_secs(chance.below(7_200))),
            step_timeout: some(chance, 3, TimeSpan::from_secs(1 + chance.below(300))),
            warn_at: some(chance, 4, MicroUsd(1_000)),
        },
        price: some(chance, 2, PRICE),
        context: architect::types::ContextLimits {
            window: match chance.below(6) {
                0 | 2 => Tokens(2_000),
                3 | 4 => Tokens(200 + chance.below(600)),
                _ => rules.context.window,
            },
            summarize_after: u32::try_from(1 + chance.below(8)).unwrap(),
            keep_recent: u32::try_from(chance.below(5)).unwrap(),
            ..rules.context
        },
        has_checks: chance.once_in(2) || mood == ModelBehavior::SchemaViolating,
        backoff: RetryBackoff {
            retry_for: some(chance, 5, TimeSpan::from_secs(chance.below(600))),
            ..rules.backoff
        },
        models: if chance.once_in(4) { other_models(chance) } else { [].into() },
        ..rules
    }
    .for_model(0)
}

/// Returns a model and two that are called when it is out of reach.
fn other_models(chance: &Rng) -> Arc<[ModelRules]> {
    let model = |name: &str| ModelRules {
        name: name.into(),
        price: chance.once_in(2).then(|| Price {
            input: chance.below(90_000_000),
            output: chance.below(90_000_000),
            ..Price::default()
        }),
        window: Tokens(2_000 + chance.below(100_000)),
        model_limit: Tokens(1_000 + chance.below(8_000)),
    };
    ["first", "second", "third"].map(model).into()
}

pub(super) fn begin(rules: &RunRules) -> (Machine, MachineOutput) {
    let task = ConversationItem::user(MessageOrigin::Task, "the task");
    Machine::start(rules.clone(), Conversation::new(100), task)
}

/// Replays the disk. Before the last event, the machine is the same as the one that wrote it.
fn replay(rules: &RunRules, disk: &SharedDisk) -> (Machine, RunTime) {
    let (mut fold, mut output) = begin(rules);
    let mut last = RunTime::START;
    let disk = disk.lock();
    for (number, (at, kept)) in disk.records.iter().enumerate() {
        last = last.max(*at);
        match disk.fingerprints.last() {
            Some((newest, stored)) if *newest == number && !disk.has_ever_failed => {
                let found = Fingerprint::of(&fold, &output.effects);
                assert_eq!(found, *stored, "the journal replays to another state before {kept:?}");
            }
            _ => {}
        }
        (fold, output) = match kept {
            StoredRecord::Event(event, received) => {
                fold.with_received(*received).handle(*at, event.clone())
            }
            StoredRecord::Resumed(resumption) => fold.resume(*at, Resumption::clone(resumption)),
            StoredRecord::Checkpoint(_) | StoredRecord::Partial | StoredRecord::Ended => {
                (fold, output)
            }
        };
    }
    (fold, last)
}

/// Returns the recovered state of the calls that were running: calls that must not run twice are in doubt.
fn resolve_running_calls(fold: &Machine) -> Vec<RecoveredCall> {
    let State::Executing(executing) = &fold.state else { return Vec::new() };
    let running =
        executing.calls.iter().filter(|call| matches!(call.state, CallState::Running { .. }));
    let doubtful = running.filter(|call| &*call.call.name != "read");
    let found = doubtful.map(|call| RecoveredCall {
        call: call.call.id.clone(),
        result: ToolResult::new(call.call.id.clone(), ToolStatus::InDoubt, "unknown"),
    });
    found.collect()
}

/// One process of a session, or a sub-agent in it.
pub(super) struct SimulatedProcess {
    pub(super) behavior: ModelBehavior,
    pub(super) chance: Rng,
    pub(super) disk: SharedDisk,
    pub(super) done: AppliedCalls,
    pub(super) shown: Counter,
    pub(super) works: Counter,
    pub(super) server: SimulatedServer,
    pub(super) pairs: SharedPairs,
    pub(super) directed: DirectedFault,
    pub(super) trouble: InjectedFault,
    pub(super) has_checkpoints: bool,
    pub(super) is_subagent: bool,
}

impl SimulatedProcess {
    pub(super) fn run(self, fold: Machine, first: MachineOutput, at: RunTime) -> Machine {
        let Self {
            behavior: mood, chance, disk, done, shown, works, server, pairs, trouble, ..
        } = self;
        let (has_checkpoints, is_subagent, directed) =
            (self.has_checkpoints, self.is_subagent, self.directed);
        directed.begin();
        let tools = SimulatedTools {
            chance: chance.clone(),
            disk: disk.clone(),
            done,
            server,
            has_checkpoints,
            is_subagent,
            trouble,
            pairs: pairs.clone(),
        };
        let brief = RequestContext { system: "be brief".into(), tools: [].into(), schema: None };
        let hooks = Arc::new(hooks(&chance, &disk));
        let model = SimulatedModel { mood, chance: chance.clone(), disk: disk.clone() };
        let texts = ("the task".into(), Arc::clone(&brief.system));
        let (model, tools, prelude) = with_hooks((Box::new(model), Arc::new(tools)), &hooks, texts);
        let checks = Arc::new(SimulatedChecks(chance.clone(), mood));
        let ports = Ports {
            tools: Arc::new(tools),
            pre_call_hooks: Arc::new(prelude),
            journal: Box::new(SimulatedJournal {
                disk: disk.clone(),
                chance: chance.clone(),
                trouble,
                directed: directed.clone(),
            }),
            observer: Box::new(Inspector {
                before: None,
                shown,
                trouble,
                chance: chance.clone(),
                directed: directed.clone(),
                pairs,
            }),
            messages: Box::new(SimulatedQueue(chance.clone())),
            checks: Arc::new(HookedAnswerChecks::new(checks, hooks)),
            checkpoints: Arc::new(SimulatedCheckpoints {
                chance: chance.clone(),
                disk: disk.clone(),
                is_enabled: has_checkpoints,
            }),
            ..Ports::new(Box::new(model))
        };
        let executor = SimulatedExecutor::new(at, chance, trouble, works, directed);
        Driver::new(Box::new(executor), ports, brief, fold).run(first)
    }
}

/// Handles every event a second time, step by step, and checks each step.
pub(super) struct Inspector {
    pub(super) before: Option<Machine>,
    pub(super) shown: Counter,
    pub(super) trouble: InjectedFault,
    pub(super) chance: Rng,
    pub(super) directed: DirectedFault,
    pub(super) pairs: SharedPairs,
}

impl Inspector {
    fn inspect(&mut self, at: RunTime, event: &Event, after: &Machine) {
        let before = self.before.take().expect("a run starts before anything happens");
        let mut state = before.with_received(after.state.run().received).state;
        let (directed, pairs) = (&self.directed, &self.pairs);
        let steps = |state: State, event: Event| {
            if let Some(number) = transition_number(&state, &event) {
                pairs.add(directed.take(number), number);
            }
            let next = step(state.clone(), event.clone());
            let broken = invariants::violations(&state, &event, &next);
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
        assert!(state == after.state, "the driver's state differs from that of its events");
        if let (Event::Authorized { authorization: Authorization::Abort, .. }, state) =
            (event, &after.state)
        {
            assert!(matches!(state, State::Done(_)));
        }
        self.before = Some(after.clone());
    }
}

impl Observer for Inspector {
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        match seen {
            RunEvent::Started { machine: fold, .. } => self.before = Some((*fold).clone()),
            RunEvent::Handled { at, event, machine: fold, .. } => self.inspect(*at, event, fold),
            RunEvent::Ended { machine: fold, .. } => assert!(matches!(fold.state, State::Done(_))),
            RunEvent::ReplyDelta { .. } | RunEvent::Notice { .. } => {}
        }
        let nth = self.shown.next();
        let leaves = match self.trouble {
            InjectedFault::ReaderLeaves(at) => nth >= at,
            InjectedFault::Chance => self.chance.once_in(2_000),
            _ => false,
        };
        if leaves { Err(Disconnected) } else { Ok(()) }
    }
}
