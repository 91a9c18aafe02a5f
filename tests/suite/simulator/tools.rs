//! Tools that succeed, fail, hang, panic, and are denied; also those of a server that dies, commands in the background,
//! and sub-agents.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use architect::machine::{Authorization, CallIntent, CheckResult, Event};
use architect::port::{
    AnswerChecks, AuthorizationOutcome, Checkpoints, EffectContext, EffectMessage, MessageSource,
    PreparedCall, ToolSpec, Toolbox,
};
use architect::types::{
    CallAccess, CallId, CheckpointKind, CheckpointOutcome, CheckpointRecord, MessageOrigin,
    MicroUsd, RecordedState, RunActivity, RunLimits, RunRules, RunTime, TimeSpan, Tokens, ToolCall,
    ToolResult, ToolStatus, Usage, UserMessage,
};

use super::directed_fault::DirectedFault;
use super::executor::panic_quietly;
use super::journal::{SharedDisk, StoredRecord};
use super::model::ModelBehavior;
use super::pairs::SharedPairs;
use super::rng::Rng;
use super::session_life::{Counter, InjectedFault, PRICE, SimulatedProcess, begin};

pub(super) const NAMES: [&str; 12] = [
    "read",
    "read",
    "write",
    "write",
    "command",
    "background",
    "delegate",
    "remote",
    "remote",
    "hang",
    "break",
    "unknown",
];

/// A server of tools, which survives the process of the run, and dies at random.
#[derive(Clone, Default)]
pub(super) struct SimulatedServer(Arc<Mutex<ServerHealth>>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ServerHealth {
    #[default]
    Up,
    Down,
}

/// The calls that changed something outside, which must not happen twice.
pub(super) type AppliedCalls = Arc<Mutex<HashSet<CallId>>>;

#[derive(Clone)]
pub(super) struct SimulatedTools {
    pub(super) chance: Rng,
    pub(super) disk: SharedDisk,
    pub(super) done: AppliedCalls,
    pub(super) server: SimulatedServer,
    /// Whether the state of the workspace is recorded before anything changes it.
    pub(super) has_checkpoints: bool,
    /// Whether these are the tools of a sub-agent, which has none of its own.
    pub(super) is_subagent: bool,
    pub(super) trouble: InjectedFault,
    pub(super) pairs: SharedPairs,
}

impl Toolbox for SimulatedTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let (tools, call) = (self.clone(), call.clone());
        <dyn PreparedCall>::from_fn(Self::access(&call), move |scope| tools.authorize(&call, scope))
    }
}

impl SimulatedTools {
    fn access(call: &ToolCall) -> CallAccess {
        match &*call.name {
            "read" => CallAccess::read("a"),
            "write" => CallAccess::write(call.arguments.text()),
            // Some sub-agents change nothing, and run beside other calls.
            "delegate" if call.arguments.text().len() > 2 => CallAccess::read(""),
            _ => CallAccess::Exclusive,
        }
    }

    fn authorize(&self, call: &ToolCall, scope: &EffectContext) -> AuthorizationOutcome {
        scope.sleep(TimeSpan(self.chance.below(4)));
        let refused = |status| {
            AuthorizationOutcome::Rejected(ToolResult::new(
                call.id.clone(),
                status,
                "it can't be run",
            ))
        };
        if self.chance.once_in(300) {
            return AuthorizationOutcome::Abort;
        }
        if self.chance.once_in(100) {
            panic_quietly();
        }
        match &*call.name {
            "unknown" => return refused(ToolStatus::Unknown),
            "delegate" if self.is_subagent => return refused(ToolStatus::Unknown),
            _ if call.arguments.text().len() < 2 => return refused(ToolStatus::Malformed),
            _ if self.chance.once_in(12) => return refused(ToolStatus::Denied),
            _ => {}
        }
        let is_pure = &*call.name == "read";
        AuthorizationOutcome::Approved {
            call: {
                let (tools, call) = (self.clone(), call.clone());
                Box::new(move |scope| tools.run(call, is_pure, scope))
            },
            timeout: TimeSpan::from_secs(1 + self.chance.below(600)),
            intent: match &*call.name {
                "read" => CallIntent::ReadOnly,
                "background" => CallIntent::Background {
                    command: "serve".into(),
                    needed: Some(self.chance.once_in(2)),
                },
                "delegate" => CallIntent::Delegated { session: None, worktree: None },
                _ => CallIntent::Opaque,
            },
            reason: "".into(),
        }
    }
}

impl SimulatedTools {
    fn run(&self, call: ToolCall, is_pure: bool, scope: &EffectContext) -> ToolResult {
        let tools = self;
        assert!(!tools.disk.lock().has_failed, "{} runs after the journal failed", call.id);
        if !is_pure {
            assert!(is_intended(&tools.disk), "{} runs before its intent is durable", call.id);
            let is_first = tools.done.lock().unwrap().insert(call.id.clone());
            assert!(is_first, "{} runs a second time", call.id);
            let changes_nothing = matches!(Self::access(&call), CallAccess::Read(_));
            let is_recorded =
                !tools.has_checkpoints || changes_nothing || has_checkpoint_of_step(&tools.disk);
            assert!(is_recorded, "{} runs before the state of the workspace is recorded", call.id);
        }
        match &*call.name {
            "same" => return ToolResult::new(call.id, ToolStatus::Ok, "the same"),
            "hang" => drop(scope.sleep(TimeSpan::from_secs(1_000_000_000))),
            "break" => panic_quietly(),
            "remote" => return tools.server.call(call, &tools.chance, scope),
            "delegate" => return tools.delegate(&call, scope),
            // The command continues, whatever happens to the run.
            "background" => return ToolResult::new(call.id, ToolStatus::Ok, "it runs"),
            _ => drop(scope.sleep(tools.chance.delay())),
        }
        let status = tools.chance.of(&[
            ToolStatus::Ok,
            ToolStatus::Ok,
            ToolStatus::Failed,
            ToolStatus::TimedOut,
        ]);
        let mut text = format!("{} {}", call.name, tools.chance.below(3));
        // Now and then a result is a large part of a context.
        if tools.chance.once_in(4) {
            text.push_str(&" more".repeat(usize::try_from(tools.chance.below(120)).unwrap()));
        }
        ToolResult::new(call.id, status, text)
    }
}

impl SimulatedTools {
    /// Runs a sub-agent to its end on a clock of its own, and then lets the same time pass. Half of its usage is
    /// reported on the way.
    fn delegate(&self, call: &ToolCall, scope: &EffectContext) -> ToolResult {
        let share = scope.budget.expect("a sub-agent has a budget share");
        let limits = RunLimits {
            max_steps: 2,
            budget: share.cost,
            max_tokens: share.tokens,
            ..RunLimits::default()
        };
        // The sub-agent calls the model of the run: without a price for it, a budget limits neither.
        let price = (self.chance.once_in(2) && share.cost.is_some()).then_some(PRICE);
        let rules = RunRules { limits, price, seed: self.chance.next(), ..RunRules::default() };
        let process = SimulatedProcess {
            behavior: ModelBehavior::Random,
            chance: self.chance.clone(),
            disk: SharedDisk::default(),
            done: AppliedCalls::default(),
            shown: Counter::default(),
            works: Counter::default(),
            server: self.server.clone(),
            pairs: self.pairs.clone(),
            directed: DirectedFault::default(),
            // If the process dies in it, the run that waits for it dies too.
            trouble: match self.trouble {
                InjectedFault::Chance => InjectedFault::Chance,
                _ => InjectedFault::None,
            },
            has_checkpoints: false,
            is_subagent: true,
        };
        let (machine, first) = begin(&rules);
        let machine = process.run(machine, first, RunTime::START);
        let run = machine.state.run();
        assert!(
            share.cost.is_none_or(|most| run.used.cost <= most),
            "it costs more than its share"
        );
        assert!(
            share.tokens.is_none_or(|most| run.used.tokens <= most),
            "it uses more than its share"
        );
        for _ in 0..2 {
            scope.sleep(TimeSpan(run.now.0 / 2));
            let usage = Usage { input: Tokens(run.used.tokens.0 / 2), ..Usage::default() };
            scope.send(EffectMessage::UsageReported(usage, MicroUsd(run.used.cost.0 / 2)));
        }
        let status =
            if scope.cancel.is_cancelled() { ToolStatus::Interrupted } else { ToolStatus::Ok };
        ToolResult::new(call.id.clone(), status, "the sub-agent is done")
    }
}

impl SimulatedServer {
    /// Replies, late or never, dies instead, or is dead and perhaps restarted.
    fn call(&self, call: ToolCall, chance: &Rng, scope: &EffectContext) -> ToolResult {
        let mut health = self.0.lock().unwrap();
        if *health == ServerHealth::Down && chance.once_in(2) {
            return ToolResult::new(call.id, ToolStatus::Failed, "the server is gone");
        }
        *health = if chance.once_in(5) { ServerHealth::Down } else { ServerHealth::Up };
        scope.sleep(chance.delay());
        match *health {
            ServerHealth::Up => ToolResult::new(call.id, ToolStatus::Ok, "an answer from afar"),
            ServerHealth::Down => ToolResult::new(call.id, ToolStatus::Failed, "the server died"),
        }
    }
}

/// Returns whether the newest intent would survive a crash.
fn is_intended(disk: &SharedDisk) -> bool {
    let disk = disk.lock();
    let cleared = |kept: &StoredRecord| {
        matches!(
            kept,
            StoredRecord::Event(
                Event::Authorized { authorization: Authorization::Approved { .. }, .. },
                _
            )
        )
    };
    let newest = disk.records.iter().rposition(|(_, kept)| cleared(kept));
    newest.is_some_and(|newest| newest < disk.durable)
}

/// Returns whether the state of the workspace was recorded for the newest reply with calls, or could not be.
fn has_checkpoint_of_step(disk: &SharedDisk) -> bool {
    let disk = disk.lock();
    let mut newest = disk.records.iter().rev().take_while(|(_, kept)| match kept {
        StoredRecord::Event(Event::Replied { reply, .. }, _) => !reply.has_calls(),
        _ => true,
    });
    newest.any(|(_, kept)| *kept == StoredRecord::Checkpoint(CheckpointKind::Step))
}

/// Records of the workspace's state that take their time, fail, and panic.
pub(super) struct SimulatedCheckpoints {
    pub(super) chance: Rng,
    pub(super) disk: SharedDisk,
    pub(super) is_enabled: bool,
}

impl Checkpoints for SimulatedCheckpoints {
    fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    fn record(
        &self,
        kind: CheckpointKind,
        step: u32,
        since: RunActivity,
        scope: &EffectContext,
    ) -> Option<CheckpointRecord> {
        let is_last = kind == CheckpointKind::End;
        assert!(is_last || !self.disk.lock().has_failed, "{kind:?} after the journal failed");
        if scope.sleep(self.chance.delay()) {
            return None;
        }
        let outcome = match self.chance.below(12) {
            0 => CheckpointOutcome::Failed("no space left on device".into()),
            2 => panic_quietly(),
            _ => CheckpointOutcome::Recorded(RecordedState {
                tree: "0".into(),
                files: 1,
                bytes: 1,
                left_out: 0,
                contents: BTreeMap::new(),
            }),
        };
        Some(CheckpointRecord { kind, step, since, target: None, outcome })
    }
}

/// Random checks, or a schema that no answer satisfies.
pub(super) struct SimulatedChecks(pub(super) Rng, pub(super) ModelBehavior);

impl AnswerChecks for SimulatedChecks {
    fn check(&self, _: &str, scope: &EffectContext) -> CheckResult {
        scope.sleep(self.0.delay());
        match self.0.below(8) {
            _ if self.1 == ModelBehavior::SchemaViolating => {
                CheckResult::SchemaViolation { message: "no JSON".into() }
            }
            0 => CheckResult::SentBack { message: "not yet".into() },
            1 => CheckResult::SchemaViolation { message: "no JSON".into() },
            2 => CheckResult::FollowUp { message: "and then?".into() },
            _ => CheckResult::Passed,
        }
    }
}

pub(super) struct SimulatedQueue(pub(super) Rng);

impl MessageSource for SimulatedQueue {
    fn take_messages(&mut self) -> Vec<UserMessage> {
        let message = || UserMessage::new(MessageOrigin::Steering, "mind the gap");
        (0..self.0.below(8).saturating_sub(6)).map(|_| message()).collect()
    }

    fn take_follow_up(&mut self) -> Option<Arc<str>> {
        self.0.once_in(6).then(|| "go on".into())
    }
}
