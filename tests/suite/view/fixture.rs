//! A fixture for whole runs: a scripted model, scripted tools, and the real driver on a clock that advances only
//! while something waits.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use architect::machine::{CallIntent, Conversation, Event, Machine, StopReason};
use architect::port::{
    EffectContext, EffectNotice, HookOutcome, HookPoint, HookRun, MessageSource,
};
use architect::runner::{Driver, DriverInput, InlineExecutor, Ports, RequestContext};
use architect::types::{
    ConversationItem, Fault, FileAction, FileChange, MessageOrigin, Price, Reply, ReplyFinish,
    ReplyPart, RunRules, RunTime, Signal, TimeSpan, Tokens, ToolCall, ToolResult, ToolStatus,
    Usage, UserMessage,
};
use architect::view::{
    CostSource, OutputError, PriorUsage, ReportSink, Reporter, RunInfo, RunResult,
};

use crate::kit::model::{self, FakeCall, call, scripted};
use crate::kit::tools::FakeTools;

/// Returns a final answer, in two pieces.
pub(crate) fn text_turn(text: &str) -> FakeCall {
    let middle = text.char_indices().map(|(at, _)| at).nth(text.chars().count() / 2);
    let (first, second) = text.split_at(middle.unwrap_or(0));
    let pieces = vec![first.to_owned(), second.to_owned()];
    let end = reply([ReplyPart::Text(text.into())]);
    FakeCall::streaming(TimeSpan::from_millis(400), pieces, Ok(end))
}

/// Returns tool calls, with a remark before them.
pub(crate) fn call_turn(remark: &str, calls: &[(&str, &str, &str)]) -> FakeCall {
    let calls = calls.iter().map(|(id, name, arguments)| call(id, name, arguments));
    let remarks = (!remark.is_empty()).then(|| ReplyPart::Text(remark.into()));
    let pieces = remarks.iter().map(|_| remark.to_owned()).collect();
    let end = reply(remarks.into_iter().chain(calls));
    FakeCall::streaming(TimeSpan::from_millis(800), pieces, Ok(end))
}

/// Returns half a reply, and then a fault.
pub(crate) fn fault_turn(text: &str, fault: Fault) -> FakeCall {
    FakeCall::streaming(TimeSpan::from_millis(100), vec![text.to_owned()], Err(fault))
}

/// Returns a reply that ends in this way.
pub(crate) fn turn_ending_with(text: &str, finish: ReplyFinish) -> FakeCall {
    Reply { finish, ..reply([ReplyPart::Text(text.into())]) }.into()
}

fn reply(parts: impl IntoIterator<Item = ReplyPart>) -> Reply {
    let usage = Usage { input: Tokens(100), output: Tokens(20), ..Usage::default() };
    Reply { usage, ..model::reply(parts) }
}

/// A run to be started.
pub(crate) struct ViewFixture {
    pub(crate) turns: Vec<FakeCall>,
    pub(crate) rules: RunRules,
    pub(crate) messages: Vec<&'static str>,
    /// The time of the user's interrupt.
    pub(crate) interrupted: Option<RunTime>,
    pub(crate) info: RunInfo,
}

/// A model of 2.5 dollars for a million tokens of input, 10 for output.
const PRICE: Price = Price {
    input: 2_500_000,
    output: 10_000_000,
    cached_input: 1_250_000,
    cache_write: 0,
    long_input: None,
};

impl ViewFixture {
    pub(crate) fn new(turns: Vec<FakeCall>) -> Self {
        let rules = RunRules { price: Some(PRICE), ..RunRules::default() };
        Self { turns, rules, messages: Vec::new(), interrupted: None, info: run_info() }
    }

    /// Runs to the end, and returns the result.
    pub(crate) fn run(
        self,
        outputs: Vec<Box<dyn ReportSink>>,
    ) -> (RunResult, Result<(), OutputError>) {
        let reporter = Reporter::new(outputs);
        self.run_with(&reporter);
        let result = reporter.results(StopReason::InternalError, "the run has no end").remove(0);
        let finished = reporter.finish(&result, None);
        (result, finished)
    }

    /// Runs to the end, with this reporter.
    pub(crate) fn run_with(self, reporter: &Reporter) {
        let Self { turns, rules, messages, interrupted, info } = self;
        let (machine, first) = Machine::start(
            rules,
            Conversation::new(0),
            ConversationItem::user(MessageOrigin::Task, Arc::clone(&info.task)),
        );
        let ports = Ports {
            tools: Arc::new(tools()),
            observer: Box::new(reporter.observe_run(info)),
            messages: Box::new(ScriptedMessages(messages)),
            ..Ports::new(scripted(turns))
        };
        let brief = RequestContext { system: "".into(), tools: [].into(), schema: None };
        let mut executor = InlineExecutor::new();
        if let Some(at) = interrupted {
            let signal = Signal::Interrupt;
            executor.schedule(at, DriverInput::Event(Event::Interrupt { signal }));
        }
        Driver::new(Box::new(executor), ports, brief, machine).run(first);
    }
}

pub(crate) fn run_info() -> RunInfo {
    RunInfo {
        session_id: "s-1".into(),
        agent: "build".into(),
        model: "scripted/demo".into(),
        effort: None,
        workspace: "/w".into(),
        task: "Edit the greeting".into(),
        sandbox: None,
        started_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        cost_source: CostSource::Agent,
        has_schema: false,
        is_new_fork: false,
        exit_on_partial: None,
        prior_usage: PriorUsage::default(),
        prior_models: Vec::new(),
    }
}

/// Returns tools by name: `edit_file` edits and has a hook, `rm` is denied, `fail` fails, every other succeeds. The
/// arguments `ms` and `say` determine how long a call takes and its result.
fn tools() -> FakeTools {
    let run = |call: &ToolCall, scope: &EffectContext| {
        let arguments: serde_json::Value =
            serde_json::from_str(call.arguments.text()).unwrap_or_default();
        scope.sleep(TimeSpan::from_millis(arguments["ms"].as_u64().unwrap_or(10)));
        let path = arguments["path"].as_str().unwrap_or("a.txt");
        let (status, text) = match &*call.name {
            "fail" => (ToolStatus::Failed, "old_str not found in a.txt\nlook again"),
            _ => (ToolStatus::Ok, "done"),
        };
        let text = arguments["say"].as_str().unwrap_or(text);
        let mut result = ToolResult::new(call.id.clone(), status, text);
        if &*call.name == "edit_file" {
            let (path, action) = (path.into(), FileAction::Modified);
            result.changes.push(FileChange { path, action, added: 5, removed: 3 });
            scope.notify(EffectNotice::Hook(HookRun {
                name: "ruff".into(),
                point: HookPoint::PostEdit,
                outcome: HookOutcome::Passed,
                duration: TimeSpan::from_millis(7),
                call: Some(call.id.clone()),
                message: None,
            }));
        }
        result
    };
    FakeTools::new(&[], run).with_authorization(|call| match &*call.name {
        "rm" => {
            let text = "denied by the rule run_command(rm *)";
            Err(ToolResult::new(call.id.clone(), ToolStatus::Denied, text))
        }
        _ => Ok(CallIntent::ReadOnly),
    })
}

/// Messages of the user; they arrive with the first call.
struct ScriptedMessages(Vec<&'static str>);

impl MessageSource for ScriptedMessages {
    fn take_messages(&mut self) -> Vec<UserMessage> {
        let messages = self.0.drain(..);
        let message = |text: &str| UserMessage::new(MessageOrigin::Steering, text);
        messages.map(message).collect()
    }

    fn take_follow_up(&mut self) -> Option<Arc<str>> {
        None
    }
}

/// A writer whose bytes can be inspected.
#[derive(Clone, Default)]
pub(crate) struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
