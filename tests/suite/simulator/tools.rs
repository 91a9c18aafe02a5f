//! Tools that succeed, fail, hang, panic, and are denied; also those of a server that dies.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use architect::machine::{Authorization, CallIntent, CheckResult, Event};
use architect::port::{
    AnswerChecks, AuthorizationOutcome, EffectContext, MessageSource, PreparedCall, ToolSpec,
    Toolbox,
};
use architect::types::{
    CallAccess, CallId, TimeSpan, ToolCall, ToolResult, ToolStatus, UserMessage,
};

use super::executor::panic_quietly;
use super::journal::{SharedDisk, StoredRecord};
use super::model::ModelBehavior;
use super::rng::Rng;

pub(super) const NAMES: [&str; 10] =
    ["read", "read", "write", "write", "command", "remote", "remote", "hang", "break", "unknown"];

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
            intent: if is_pure { CallIntent::ReadOnly } else { CallIntent::Opaque },
            reason: "".into(),
        }
    }
}

impl SimulatedTools {
    fn run(&self, call: ToolCall, is_pure: bool, scope: &EffectContext) -> ToolResult {
        let tools = self;
        if !is_pure {
            assert!(is_intended(&tools.disk), "{} runs before its intent is durable", call.id);
            let is_first = tools.done.lock().unwrap().insert(call.id.clone());
            assert!(is_first, "{} runs a second time", call.id);
        }
        match &*call.name {
            "same" => return ToolResult::new(call.id, ToolStatus::Ok, "the same"),
            "hang" => drop(scope.sleep(TimeSpan::from_secs(1_000_000_000))),
            "break" => panic_quietly(),
            "remote" => return tools.server.call(call, &tools.chance, scope),
            _ => drop(scope.sleep(tools.chance.delay())),
        }
        let status = tools.chance.of(&[
            ToolStatus::Ok,
            ToolStatus::Ok,
            ToolStatus::Failed,
            ToolStatus::TimedOut,
        ]);
        let text = format!("{} {}", call.name, tools.chance.below(3));
        ToolResult::new(call.id, status, text)
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
        let message =
            || UserMessage::new(architect::types::MessageOrigin::Steering, "mind the gap");
        (0..self.0.below(8).saturating_sub(6)).map(|_| message()).collect()
    }

    fn take_follow_up(&mut self) -> Option<Arc<str>> {
        self.0.once_in(6).then(|| "go on".into())
    }
}
