//! Tools that succeed, fail, hang, break down, and are refused; those of a server that dies under them, too.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use architect::machine::{Check, Event, Intent, Verdict};
use architect::model::{Access, CallId, Span, ToolCall, ToolResult, ToolStatus, UserMessage};
use architect::port::{Checks, Job, Mailbox, Scope, ToolSpec, Toolbox, Vetted};

use super::chance::Chance;
use super::hands::break_down;
use super::journal::{Kept, Shared};
use super::model::Mood;

pub(super) const NAMES: [&str; 10] =
    ["read", "read", "write", "write", "command", "remote", "remote", "hang", "break", "unknown"];

/// A server of tools, which outlives a process of the run, and dies when it likes.
#[derive(Clone, Default)]
pub(super) struct Remote(Arc<Mutex<Health>>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Health {
    #[default]
    Up,
    Down,
}

/// The calls that changed something outside; a second time would be once too often.
pub(super) type Done = Arc<Mutex<HashSet<CallId>>>;

#[derive(Clone)]
pub(super) struct SimulatedTools {
    pub(super) chance: Chance,
    pub(super) disk: Shared,
    pub(super) done: Done,
    pub(super) server: Remote,
}

struct Doing {
    call: ToolCall,
    tools: SimulatedTools,
    is_pure: bool,
}

impl Toolbox for SimulatedTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn access(&self, call: &ToolCall) -> Access {
        match &*call.name {
            "read" => Access::read("a"),
            "write" => Access::write(call.arguments.text()),
            _ => Access::Exclusive,
        }
    }

    fn vet(&self, call: &ToolCall, scope: &Scope) -> Vetted {
        scope.sleep(Span(self.chance.below(4)));
        let refused =
            |status| Vetted::Refused(ToolResult::new(call.id.clone(), status, "it can't be run"));
        if self.chance.once_in(300) {
            return Vetted::Abort;
        }
        if self.chance.once_in(100) {
            break_down();
        }
        match &*call.name {
            "unknown" => return refused(ToolStatus::Unknown),
            _ if call.arguments.text().len() < 2 => return refused(ToolStatus::Malformed),
            _ if self.chance.once_in(12) => return refused(ToolStatus::Denied),
            _ => {}
        }
        let is_pure = &*call.name == "read";
        Vetted::Cleared {
            job: Box::new(Doing { call: call.clone(), tools: self.clone(), is_pure }),
            limit: Span::secs(1 + self.chance.below(600)),
            intent: if is_pure { Intent::Pure } else { Intent::Opaque },
            grounds: "".into(),
        }
    }
}

impl Job for Doing {
    fn run(self: Box<Self>, scope: &Scope) -> ToolResult {
        let Self { call, tools, is_pure } = *self;
        if !is_pure {
            assert!(is_intended(&tools.disk), "{} runs before its intent is durable", call.id);
            let is_first = tools.done.lock().unwrap().insert(call.id.clone());
            assert!(is_first, "{} runs a second time", call.id);
        }
        match &*call.name {
            "same" => return ToolResult::new(call.id, ToolStatus::Ok, "the same"),
            "hang" => drop(scope.sleep(Span::secs(1_000_000_000))),
            "break" => break_down(),
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

impl Remote {
    /// Answers, late or never, dies instead of an answer, or is dead and perhaps started again.
    fn call(&self, call: ToolCall, chance: &Chance, scope: &Scope) -> ToolResult {
        let mut health = self.0.lock().unwrap();
        if *health == Health::Down && chance.once_in(2) {
            return ToolResult::new(call.id, ToolStatus::Failed, "the server is gone");
        }
        *health = if chance.once_in(5) { Health::Down } else { Health::Up };
        scope.sleep(chance.delay());
        match *health {
            Health::Up => ToolResult::new(call.id, ToolStatus::Ok, "an answer from afar"),
            Health::Down => ToolResult::new(call.id, ToolStatus::Failed, "the server died"),
        }
    }
}

/// Returns whether the newest intent that was written down would survive a crash.
fn is_intended(disk: &Shared) -> bool {
    let disk = disk.lock();
    let cleared = |kept: &Kept| {
        matches!(kept, Kept::Event(Event::Vetted { verdict: Verdict::Cleared { .. }, .. }))
    };
    let newest = disk.records.iter().rposition(|(_, kept)| cleared(kept));
    newest.is_some_and(|newest| newest < disk.durable)
}

/// Checks by chance, or against a schema that no answer satisfies.
pub(super) struct SimulatedChecks(pub(super) Chance, pub(super) Mood);

impl Checks for SimulatedChecks {
    fn check(&self, _: &str, scope: &Scope) -> Check {
        scope.sleep(self.0.delay());
        match self.0.below(8) {
            _ if self.1 == Mood::Unfit => Check::Unfit { message: "no JSON".into() },
            0 => Check::SentBack { message: "not yet".into() },
            1 => Check::Unfit { message: "no JSON".into() },
            2 => Check::FollowUp { message: "and then?".into() },
            _ => Check::Passed,
        }
    }
}

pub(super) struct SimulatedMail(pub(super) Chance);

impl Mailbox for SimulatedMail {
    fn messages(&mut self) -> Vec<UserMessage> {
        let message = || UserMessage {
            origin: architect::model::Origin::Steering,
            text: "mind the gap".into(),
        };
        (0..self.0.below(8).saturating_sub(6)).map(|_| message()).collect()
    }

    fn follow_up(&mut self) -> Option<Arc<str>> {
        self.0.once_in(6).then(|| "go on".into())
    }
}
