//! The driver with a scripted model, and tools that are named after their behaviour.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use architect::machine::{CallIntent, CallPurpose, Event, Machine};
use architect::port::{
    Clock, Disconnected, EffectContext, Journal, JournalRecord, Observer, ReplyDelta, RunEvent,
    StoreError,
};
use architect::runner::{Executor, InlineExecutor, Ports, SystemClock, ThreadExecutor};
use architect::types::{
    CallAccess, Fault, FaultKind, RunRules, RunTime, TimeSpan, ToolCall, ToolResult, ToolStatus,
};

use crate::kit::model::{FakeCall, call, model, reply, text};
use crate::kit::run::run;
use crate::kit::tools::{FakeTools, ok};

/// The model's reply to a request.
#[derive(Clone)]
pub(crate) enum ScriptedReply {
    Text(&'static str),
    Calls(Vec<(&'static str, &'static str)>),
    Fails(FaultKind),
    /// Streams a text, waits, and ends with another.
    Slowly(&'static str, TimeSpan, &'static str),
    /// Ignores its cancellation, and replies after a time with calls of these ids and names.
    Late(TimeSpan, [(&'static str, &'static str); 2]),
    Panics,
}

/// The duration of the tool `hang`.
pub(crate) const HANG: Duration = Duration::from_secs(30);

/// Observations of a run.
#[derive(Default)]
pub(crate) struct RecordedRun {
    /// The purpose of each request, and its number of tools.
    pub(crate) requests: Vec<(CallPurpose, usize)>,
    /// The actions of tools, in their order.
    pub(crate) did: Vec<String>,
    pub(crate) records: Vec<String>,
    pub(crate) syncs: usize,
    pub(crate) deltas: String,
}

pub(crate) type SharedRecord = Arc<Mutex<RecordedRun>>;

impl From<ScriptedReply> for FakeCall {
    fn from(scripted: ScriptedReply) -> Self {
        match scripted {
            ScriptedReply::Text(answer) => text(answer).into(),
            ScriptedReply::Calls(calls) => {
                let calls = calls.iter().enumerate();
                reply(calls.map(|(index, (name, arguments))| {
                    call(&format!("{name}-{index}"), name, arguments)
                }))
                .into()
            }
            ScriptedReply::Late(span, calls) => Self::new(move |scope, _| {
                scope.sleep(span);
                Ok(reply(calls.map(|(id, name)| call(id, name, "{}"))))
            }),
            ScriptedReply::Fails(kind) => Self::failing(kind),
            ScriptedReply::Slowly(first, span, answer) => Self::new(move |scope, sink| {
                sink(ReplyDelta::Text(first.to_owned()));
                match scope.sleep(span) {
                    true => Err(Fault::new(FaultKind::Truncated, "cancelled")),
                    false => Ok(text(answer)),
                }
            }),
            ScriptedReply::Panics => Self::new(|_, _| panic!("the model broke down")),
        }
    }
}

/// Returns tools: `read` and `write` return at once, `follow` waits until the call that its argument names has ended,
/// `hang` ignores its cancellation, as does the sub-agent of `dispatch`, `panic` panics, and `leave` panics after it
/// has started a command, which never ends.
fn tools(record: &SharedRecord) -> FakeTools {
    let (record, changed) = (Arc::clone(record), Condvar::new());
    let run = move |call: &ToolCall, scope: &EffectContext| {
        match &*call.name {
            "leave" => {
                std::mem::forget(scope.command.clone());
                panic!("the tool broke down");
            }
            "follow" => {
                let arguments: serde_json::Value =
                    serde_json::from_str(call.arguments.text()).unwrap();
                let awaited = arguments["call"].as_str().unwrap();
                let is_missing =
                    |record: &mut RecordedRun| record.did.iter().all(|id| id != awaited);
                let late = Duration::from_secs(20);
                drop(changed.wait_timeout_while(record.lock().unwrap(), late, is_missing));
            }
            "hang" => std::thread::sleep(HANG),
            "dispatch" => drop(scope.sleep(HANG.into())),
            "panic" => panic!("the tool broke down"),
            "wait" => drop(scope.sleep(TimeSpan::from_secs(60))),
            _ => {}
        }
        record.lock().unwrap().did.push(call.id.to_string());
        changed.notify_all();
        ok(call, &call.name)
    };
    FakeTools::new(&["read", "write", "follow", "hang", "panic", "wait"], run)
        .with_access(|call| match &*call.name {
            "read" | "follow" => CallAccess::read("a"),
            "write" => CallAccess::write("a"),
            _ => CallAccess::Exclusive,
        })
        .with_authorization(|call| match &*call.name {
            "forbidden" => Err(ToolResult::new(call.id.clone(), ToolStatus::Denied, "no")),
            "write" => Ok(CallIntent::Opaque),
            "dispatch" => Ok(CallIntent::Delegated { session: None, worktree: None }),
            "serve" | "leave" => Ok(CallIntent::Background {
                command: "serve".into(),
                needed: Some(&*call.name == "serve"),
            }),
            _ => Ok(CallIntent::ReadOnly),
        })
}

/// A journal that can be full from some record on, and can fail to sync.
pub(crate) struct FailingJournal {
    pub(crate) record: SharedRecord,
    pub(crate) capacity: usize,
    pub(crate) sync_fails_at: Option<usize>,
}

impl Journal for FailingJournal {
    fn append(&mut self, _: RunTime, appended: JournalRecord<'_>) -> Result<(), StoreError> {
        let mut record = self.record.lock().unwrap();
        if record.records.len() == self.capacity {
            return Err(StoreError("no space left".into()));
        }
        record.records.push(match appended {
            JournalRecord::Event { event, .. } => serde_json::to_string(event).unwrap(),
            JournalRecord::Partial { id, text } => format!("{id} sent {text:?}"),
            JournalRecord::Checkpoint(record) => format!("{record:?}"),
            JournalRecord::Ended { done, .. } => format!("{}", done.outcome.reason),
        });
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let mut record = self.record.lock().unwrap();
        record.syncs += 1;
        match self.sync_fails_at {
            Some(at) if record.syncs >= at => Err(StoreError("input/output error".into())),
            _ => Ok(()),
        }
    }
}

pub(crate) struct EventRecorder {
    pub(crate) record: SharedRecord,
    /// The number of events after which the observer disconnects.
    pub(crate) leaves_after: usize,
}

impl Observer for EventRecorder {
    fn on_event(&mut self, event: &RunEvent<'_>) -> Result<(), Disconnected> {
        if let RunEvent::ReplyDelta { delta: ReplyDelta::Text(text), .. } = event {
            self.record.lock().unwrap().deltas.push_str(text);
        }
        self.leaves_after = self.leaves_after.saturating_sub(1);
        if self.leaves_after == 0 { Err(Disconnected) } else { Ok(()) }
    }
}

/// A clock that stops.
struct StoppingClock {
    real: SystemClock,
    last: RunTime,
}

impl Clock for StoppingClock {
    fn now(&self) -> RunTime {
        self.real.now().min(self.last)
    }

    fn wall_time(&self) -> SystemTime {
        self.real.wall_time()
    }
}

/// A run that is about to begin.
pub(crate) struct DriverFixture {
    pub(crate) rules: RunRules,
    pub(crate) replies: Vec<ScriptedReply>,
    pub(crate) record: SharedRecord,
    pub(crate) capacity: usize,
    pub(crate) sync_fails_at: Option<usize>,
    pub(crate) leaves_after: usize,
}

impl DriverFixture {
    pub(crate) fn new(replies: &[ScriptedReply]) -> Self {
        Self {
            rules: RunRules::default(),
            replies: replies.to_vec(),
            record: SharedRecord::default(),
            capacity: usize::MAX,
            sync_fails_at: None,
            leaves_after: usize::MAX,
        }
    }

    /// Runs on one thread, in virtual time.
    pub(crate) fn run_inline(self) -> (Machine, RecordedRun) {
        self.run_with(InlineExecutor::new())
    }

    /// Runs on threads; `before` gets the sender of its inputs.
    pub(crate) fn run_on_threads(
        self,
        before: impl FnOnce(architect::runner::DriverInputSender),
    ) -> (Machine, RecordedRun) {
        let threads =
            ThreadExecutor::new(Arc::new(SystemClock::start()), self.rules.bounds.parallel_calls);
        before(threads.inbox());
        self.run_with(threads)
    }

    /// Runs on threads, with a clock that stops at a time, so that later inputs are never late.
    pub(crate) fn run_until(self, last: RunTime) -> (Machine, RecordedRun) {
        let clock = StoppingClock { real: SystemClock::start(), last };
        let parallel = self.rules.bounds.parallel_calls;
        self.run_with(ThreadExecutor::new(Arc::new(clock), parallel))
    }

    pub(crate) fn run_with(self, executor: impl Executor + 'static) -> (Machine, RecordedRun) {
        let record = Arc::clone(&self.record);
        let mut calls = self.replies.into_iter();
        let requests = Arc::clone(&record);
        let model = model(move |request| {
            let sent = (request.purpose, request.tools.len());
            requests.lock().unwrap().requests.push(sent);
            calls.next().map_or_else(|| FakeCall::failing(FaultKind::Request), FakeCall::from)
        });
        let ports = Ports {
            tools: Arc::new(tools(&record)),
            journal: Box::new(FailingJournal {
                record: Arc::clone(&record),
                capacity: self.capacity,
                sync_fails_at: self.sync_fails_at,
            }),
            observer: Box::new(EventRecorder {
                record: Arc::clone(&record),
                leaves_after: self.leaves_after,
            }),
            ..Ports::new(model)
        };
        let machine = run(executor, self.rules, ports);
        let record = std::mem::take(&mut *record.lock().unwrap());
        (machine, record)
    }
}

pub(crate) fn interrupt() -> architect::runner::DriverInput {
    architect::runner::DriverInput::Event(Event::Interrupt {
        signal: architect::types::Signal::Interrupt,
    })
}
