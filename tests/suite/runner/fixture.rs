//! A small world for the driver: a model that says what it was told to, tools that do what their name says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use architect::machine::{
    CallIntent, CallPurpose, Conversation, Event, Machine, State, StopReason,
};
use architect::model::{
    CallAccess, ConversationItem, Fault, FaultKind, MessageOrigin, Reply, ReplyFinish, ReplyPart,
    RunRules, RunTime, TimeSpan, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{
    ApprovedCall, AuthorizationOutcome, Disconnected, EffectContext, Journal, JournalRecord, Model,
    ModelCall, ModelRequest, Observer, PreparedCall, ReplyDelta, RunEvent, StoreError, ToolSpec,
    Toolbox,
};
use architect::runner::{
    Driver, Executor, InlineExecutor, Ports, RequestContext, SystemClock, ThreadExecutor,
};

/// What the model does when it is asked.
#[derive(Clone)]
pub(crate) enum ScriptedReply {
    Text(&'static str),
    Calls(Vec<(&'static str, &'static str)>),
    Fails(FaultKind),
    /// Speaks, waits so long, and answers.
    Slowly(&'static str, TimeSpan, &'static str),
    Panics,
}

/// What was noticed of a run.
#[derive(Default)]
pub(crate) struct RecordedRun {
    /// Purpose of each request, with how many tools it had.
    pub(crate) asked: Vec<(CallPurpose, usize)>,
    /// What tools did, in the order in which they did it.
    pub(crate) did: Vec<String>,
    pub(crate) records: Vec<String>,
    pub(crate) syncs: usize,
    pub(crate) deltas: String,
}

pub(crate) type SharedRecord = Arc<Mutex<RecordedRun>>;

struct ScriptedModel(VecDeque<ScriptedReply>, SharedRecord);

struct ScriptedCall(ScriptedReply);

impl Model for ScriptedModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        self.1.lock().unwrap().asked.push((ask.purpose, ask.tools.len()));
        let nothing = || Fault::new(FaultKind::Request, "nothing left to say");
        Ok(Box::new(ScriptedCall(self.0.pop_front().ok_or_else(nothing)?)))
    }
}

impl ModelCall for ScriptedCall {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        let reply = |parts: Vec<ReplyPart>, finish| {
            Ok(Reply { parts: parts.into(), finish, usage: Usage::default(), model: None })
        };
        match self.0 {
            ScriptedReply::Text(text) => {
                reply(vec![ReplyPart::Text(text.into())], ReplyFinish::Stop)
            }
            ScriptedReply::Calls(calls) => {
                let call = |(index, (name, arguments)): (usize, &(&str, &str))| {
                    let id = format!("{name}-{index}");
                    ReplyPart::Call(ToolCall::new(id.as_str().into(), name, arguments))
                };
                reply(calls.iter().enumerate().map(call).collect(), ReplyFinish::ToolCalls)
            }
            ScriptedReply::Fails(kind) => Err(Fault::new(kind, "it failed")),
            ScriptedReply::Slowly(first, span, text) => {
                sink(ReplyDelta::Text(first.to_owned()));
                match scope.sleep(span) {
                    true => Err(Fault::new(FaultKind::Truncated, "cancelled")),
                    false => reply(vec![ReplyPart::Text(text.into())], ReplyFinish::Stop),
                }
            }
            ScriptedReply::Panics => panic!("the model broke down"),
        }
    }
}

/// `read` and `write` do at once what they are asked; `nap` waits, `hang` never comes back, `panic` breaks down.
#[derive(Clone)]
struct ScriptedTools(SharedRecord);

struct ScriptedJob(String, ToolCall, SharedRecord);

impl Toolbox for ScriptedTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: "".into(),
            schema: serde_json::json!({"type": "object"}),
        };
        ["read", "write", "nap", "hang", "panic"].map(spec).into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let (tools, call) = (self.clone(), call.clone());
        <dyn PreparedCall>::from_fn(tools.access(&call), move |scope| tools.authorize(&call, scope))
    }
}

impl ScriptedTools {
    fn access(&self, call: &ToolCall) -> CallAccess {
        match &*call.name {
            "read" | "nap" => CallAccess::read("a"),
            "write" => CallAccess::write("a"),
            _ => CallAccess::Exclusive,
        }
    }

    fn authorize(&self, call: &ToolCall, _: &EffectContext) -> AuthorizationOutcome {
        if &*call.name == "forbidden" {
            let result = ToolResult::new(call.id.clone(), ToolStatus::Denied, "no");
            return AuthorizationOutcome::Rejected(result);
        }
        AuthorizationOutcome::Approved {
            call: Box::new(ScriptedJob(call.name.to_string(), call.clone(), Arc::clone(&self.0))),
            timeout: TimeSpan::from_secs(60),
            intent: if &*call.name == "write" { CallIntent::Opaque } else { CallIntent::ReadOnly },
            reason: "".into(),
        }
    }
}

impl ApprovedCall for ScriptedJob {
    fn run(self: Box<Self>, scope: &EffectContext) -> ToolResult {
        let Self(name, call, noticed) = *self;
        match name.as_str() {
            "nap" => {
                let millis: u64 = call
                    .arguments
                    .text()
                    .trim_matches(['{', '}', '"', 'm', ':', ' '])
                    .parse()
                    .unwrap();
                scope.sleep(TimeSpan::from_millis(millis));
            }
            // Deaf: it does not look at its token.
            "hang" => std::thread::sleep(Duration::from_secs(30)),
            "panic" => panic!("the tool broke down"),
            _ => {}
        }
        noticed.lock().unwrap().did.push(call.id.to_string());
        ToolResult::new(call.id, ToolStatus::Ok, name)
    }
}

/// A journal that can be full from some record on, and that may fail to sync.
pub(crate) struct FailingJournal {
    pub(crate) noticed: SharedRecord,
    pub(crate) room: usize,
    pub(crate) sync_fails_at: Option<usize>,
}

impl Journal for FailingJournal {
    fn append(&mut self, _: RunTime, record: JournalRecord<'_>) -> Result<(), StoreError> {
        let mut noticed = self.noticed.lock().unwrap();
        if noticed.records.len() == self.room {
            return Err(StoreError("no space left".into()));
        }
        noticed.records.push(match record {
            JournalRecord::Event { event, .. } => serde_json::to_string(event).unwrap(),
            JournalRecord::Partial { id, text } => format!("{id} had said {text:?}"),
            JournalRecord::Ended { done, .. } => format!("{}", done.outcome.reason),
        });
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let mut noticed = self.noticed.lock().unwrap();
        noticed.syncs += 1;
        match self.sync_fails_at {
            Some(at) if noticed.syncs >= at => Err(StoreError("input/output error".into())),
            _ => Ok(()),
        }
    }
}

pub(crate) struct EventRecorder {
    pub(crate) noticed: SharedRecord,
    /// Calls after which nobody reads any more.
    pub(crate) leaves_after: usize,
}

impl Observer for EventRecorder {
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        if let RunEvent::ReplyDelta { delta: ReplyDelta::Text(text), .. } = seen {
            self.noticed.lock().unwrap().deltas.push_str(text);
        }
        self.leaves_after = self.leaves_after.saturating_sub(1);
        if self.leaves_after == 0 { Err(Disconnected) } else { Ok(()) }
    }
}

/// A run that is about to begin.
pub(crate) struct DriverFixture {
    pub(crate) rules: RunRules,
    pub(crate) says: Vec<ScriptedReply>,
    pub(crate) noticed: SharedRecord,
    pub(crate) room: usize,
    pub(crate) sync_fails_at: Option<usize>,
    pub(crate) leaves_after: usize,
}

impl DriverFixture {
    pub(crate) fn new(says: &[ScriptedReply]) -> Self {
        Self {
            rules: RunRules::default(),
            says: says.to_vec(),
            noticed: SharedRecord::default(),
            room: usize::MAX,
            sync_fails_at: None,
            leaves_after: usize::MAX,
        }
    }

    /// Runs on the spot, in virtual time.
    pub(crate) fn run_inline(self) -> (Machine, RecordedRun) {
        self.run_with(InlineExecutor::new())
    }

    /// Runs on threads; `meddle` gets the way into the inbox before the run begins.
    pub(crate) fn run_on_threads(
        self,
        meddle: impl FnOnce(architect::runner::DriverInputSender),
    ) -> (Machine, RecordedRun) {
        let threads =
            ThreadExecutor::new(Arc::new(SystemClock::start()), self.rules.bounds.parallel_calls);
        meddle(threads.inbox());
        self.run_with(threads)
    }

    pub(crate) fn run_with(self, hands: impl Executor) -> (Machine, RecordedRun) {
        let noticed = Arc::clone(&self.noticed);
        let tools = Arc::new(ScriptedTools(Arc::clone(&noticed)));
        let brief = RequestContext { system: "system".into(), tools: tools.specs(), schema: None };
        let ports = Ports {
            tools,
            journal: Box::new(FailingJournal {
                noticed: Arc::clone(&noticed),
                room: self.room,
                sync_fails_at: self.sync_fails_at,
            }),
            observer: Box::new(EventRecorder {
                noticed: Arc::clone(&noticed),
                leaves_after: self.leaves_after,
            }),
            ..Ports::new(Box::new(ScriptedModel(self.says.into(), Arc::clone(&noticed))))
        };
        let conversation = Conversation::new(brief.request_bytes());
        let task = ConversationItem::user(MessageOrigin::Task, "the task");
        let (fold, first) = Machine::start(self.rules, conversation, task);
        let fold = Driver::new(hands, ports, brief, fold).run(first);
        let noticed = std::mem::take(&mut *noticed.lock().unwrap());
        (fold, noticed)
    }
}

pub(crate) fn reason(fold: &Machine) -> StopReason {
    let State::Done(done) = &fold.state else { panic!("not done: {:?}", fold.state.kind()) };
    done.outcome.reason
}

pub(crate) fn output(fold: &Machine) -> String {
    let State::Done(done) = &fold.state else { panic!("not done: {:?}", fold.state.kind()) };
    done.outcome.output.as_deref().unwrap_or_default().to_owned()
}

/// The results of all exchanges, in the order of the conversation.
pub(crate) fn results(fold: &Machine) -> Vec<(String, ToolStatus)> {
    let results = fold.conversation.entries().iter().filter_map(|entry| match &entry.item {
        ConversationItem::Exchange(exchange) => Some(exchange.results()),
        _ => None,
    });
    results.flatten().map(|result| (result.call.to_string(), result.status)).collect()
}

pub(crate) fn interrupt() -> architect::runner::DriverInput {
    architect::runner::DriverInput::Event(Event::Interrupt {
        signal: architect::model::Signal::Interrupt,
    })
}
