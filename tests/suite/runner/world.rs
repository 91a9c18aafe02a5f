//! A small world for the driver: a model that says what it was told to, tools that do what their name says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use architect::machine::{Conversation, Event, Fold, Intent, Purpose, State, StopReason};
use architect::model::{
    Access, Fault, FaultKind, Finish, Item, Origin, Part, Reply, Rules, Span, Time, ToolCall,
    ToolResult, ToolStatus, Usage,
};
use architect::port::{
    Ask, Delta, Gone, Job, Journal, Model, ModelCall, Observer, Record, Scope, Seen, StoreError,
    ToolSpec, Toolbox, Vetted,
};
use architect::runner::{Brief, Driver, Hands, Inline, Ports, SystemClock, Threads};

/// What the model does when it is asked.
#[derive(Clone)]
pub(crate) enum Says {
    Text(&'static str),
    Calls(Vec<(&'static str, &'static str)>),
    Fails(FaultKind),
    /// Speaks, waits so long, and answers.
    Slowly(&'static str, Span, &'static str),
    Panics,
}

/// What was noticed of a run.
#[derive(Default)]
pub(crate) struct Noticed {
    /// Purpose of each request, with how many tools it had.
    pub(crate) asked: Vec<(Purpose, usize)>,
    /// What tools did, in the order in which they did it.
    pub(crate) did: Vec<String>,
    pub(crate) records: Vec<String>,
    pub(crate) syncs: usize,
    pub(crate) deltas: String,
}

pub(crate) type Shared = Arc<Mutex<Noticed>>;

struct Scripted(VecDeque<Says>, Shared);

struct Answer(Says);

impl Model for Scripted {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        self.1.lock().unwrap().asked.push((ask.purpose, ask.tools.len()));
        let nothing = || Fault::new(FaultKind::Request, "nothing left to say");
        Ok(Box::new(Answer(self.0.pop_front().ok_or_else(nothing)?)))
    }
}

impl ModelCall for Answer {
    fn run(self: Box<Self>, scope: &Scope, sink: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        let reply = |parts: Vec<Part>, finish| {
            Ok(Reply { parts: parts.into(), finish, usage: Usage::default(), model: None })
        };
        match self.0 {
            Says::Text(text) => reply(vec![Part::Text(text.into())], Finish::Stop),
            Says::Calls(calls) => {
                let call = |(index, (name, arguments)): (usize, &(&str, &str))| {
                    let id = format!("{name}-{index}");
                    Part::Call(ToolCall::new(id.as_str().into(), name, arguments))
                };
                reply(calls.iter().enumerate().map(call).collect(), Finish::ToolCalls)
            }
            Says::Fails(kind) => Err(Fault::new(kind, "it failed")),
            Says::Slowly(first, span, text) => {
                sink(Delta::Text(first.to_owned()));
                match scope.sleep(span) {
                    true => Err(Fault::new(FaultKind::Truncated, "cancelled")),
                    false => reply(vec![Part::Text(text.into())], Finish::Stop),
                }
            }
            Says::Panics => panic!("the model broke down"),
        }
    }
}

/// `read` and `write` do at once what they are asked; `nap` waits, `hang` never comes back, `panic` breaks down.
struct Tools(Shared);

struct Doing(String, ToolCall, Shared);

impl Toolbox for Tools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: "".into(),
            schema: serde_json::json!({"type": "object"}),
        };
        ["read", "write", "nap", "hang", "panic"].map(spec).into()
    }

    fn access(&self, call: &ToolCall) -> Access {
        match &*call.name {
            "read" | "nap" => Access::read("a"),
            "write" => Access::write("a"),
            _ => Access::Exclusive,
        }
    }

    fn vet(&self, call: &ToolCall, _: &Scope) -> Vetted {
        if &*call.name == "forbidden" {
            let result = ToolResult::new(call.id.clone(), ToolStatus::Denied, "no");
            return Vetted::Refused(result);
        }
        Vetted::Cleared {
            job: Box::new(Doing(call.name.to_string(), call.clone(), Arc::clone(&self.0))),
            limit: Span::secs(60),
            intent: if &*call.name == "write" { Intent::Opaque } else { Intent::Pure },
            grounds: "".into(),
        }
    }
}

impl Job for Doing {
    fn run(self: Box<Self>, scope: &Scope) -> ToolResult {
        let Self(name, call, noticed) = *self;
        match name.as_str() {
            "nap" => {
                let millis: u64 = call
                    .arguments
                    .text()
                    .trim_matches(['{', '}', '"', 'm', ':', ' '])
                    .parse()
                    .unwrap();
                scope.sleep(Span::millis(millis));
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
pub(crate) struct Paper {
    pub(crate) noticed: Shared,
    pub(crate) room: usize,
    pub(crate) sync_fails_at: Option<usize>,
}

impl Journal for Paper {
    fn append(&mut self, _: Time, record: Record<'_>) -> Result<(), StoreError> {
        let mut noticed = self.noticed.lock().unwrap();
        if noticed.records.len() == self.room {
            return Err(StoreError("no space left".into()));
        }
        noticed.records.push(match record {
            Record::Event { event, .. } => serde_json::to_string(event).unwrap(),
            Record::Partial { id, text } => format!("{id} had said {text:?}"),
            Record::Ended { done, .. } => format!("{}", done.outcome.reason),
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

pub(crate) struct Watcher {
    pub(crate) noticed: Shared,
    /// Calls after which nobody reads any more.
    pub(crate) leaves_after: usize,
}

impl Observer for Watcher {
    fn see(&mut self, seen: &Seen<'_>) -> Result<(), Gone> {
        if let Seen::Delta { delta: Delta::Text(text), .. } = seen {
            self.noticed.lock().unwrap().deltas.push_str(text);
        }
        self.leaves_after = self.leaves_after.saturating_sub(1);
        if self.leaves_after == 0 { Err(Gone) } else { Ok(()) }
    }
}

/// A run that is about to begin.
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) says: Vec<Says>,
    pub(crate) noticed: Shared,
    pub(crate) room: usize,
    pub(crate) sync_fails_at: Option<usize>,
    pub(crate) leaves_after: usize,
}

impl World {
    pub(crate) fn new(says: &[Says]) -> Self {
        Self {
            rules: Rules::default(),
            says: says.to_vec(),
            noticed: Shared::default(),
            room: usize::MAX,
            sync_fails_at: None,
            leaves_after: usize::MAX,
        }
    }

    /// Runs on the spot, in virtual time.
    pub(crate) fn run_inline(self) -> (Fold, Noticed) {
        self.run_with(Inline::new())
    }

    /// Runs on threads; `meddle` gets the way into the inbox before the run begins.
    pub(crate) fn run_on_threads(
        self,
        meddle: impl FnOnce(architect::runner::Inbox),
    ) -> (Fold, Noticed) {
        let threads = Threads::new(Arc::new(SystemClock::start()), self.rules.bounds.parallel);
        meddle(threads.inbox());
        self.run_with(threads)
    }

    pub(crate) fn run_with(self, hands: impl Hands) -> (Fold, Noticed) {
        let noticed = Arc::clone(&self.noticed);
        let tools = Arc::new(Tools(Arc::clone(&noticed)));
        let brief = Brief { system: "system".into(), tools: tools.specs(), schema: None };
        let ports = Ports {
            tools,
            journal: Box::new(Paper {
                noticed: Arc::clone(&noticed),
                room: self.room,
                sync_fails_at: self.sync_fails_at,
            }),
            observer: Box::new(Watcher {
                noticed: Arc::clone(&noticed),
                leaves_after: self.leaves_after,
            }),
            ..Ports::new(Box::new(Scripted(self.says.into(), Arc::clone(&noticed))))
        };
        let conversation = Conversation::new(brief.bytes());
        let task = Item::user(Origin::Task, "the task");
        let (fold, first) = Fold::start(self.rules, conversation, task);
        let fold = Driver::new(hands, ports, brief, fold).run(first);
        let noticed = std::mem::take(&mut *noticed.lock().unwrap());
        (fold, noticed)
    }
}

pub(crate) fn reason(fold: &Fold) -> StopReason {
    let State::Done(done) = &fold.state else { panic!("not done: {:?}", fold.state.kind()) };
    done.outcome.reason
}

pub(crate) fn output(fold: &Fold) -> String {
    let State::Done(done) = &fold.state else { panic!("not done: {:?}", fold.state.kind()) };
    done.outcome.output.as_deref().unwrap_or_default().to_owned()
}

/// The results of all exchanges, in the order of the conversation.
pub(crate) fn results(fold: &Fold) -> Vec<(String, ToolStatus)> {
    let results = fold.conversation.entries().iter().filter_map(|entry| match &entry.item {
        Item::Exchange(exchange) => Some(exchange.results()),
        _ => None,
    });
    results.flatten().map(|result| (result.call.to_string(), result.status)).collect()
}

pub(crate) fn interrupt() -> architect::runner::Arrival {
    architect::runner::Arrival::Event(Event::Interrupt {
        signal: architect::model::Signal::Interrupt,
    })
}
