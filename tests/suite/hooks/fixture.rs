//! A run with hooks, a scripted model, and a tool that writes real files.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use architect::hooks::{
    HookError, HookInput, HookMatcher, HookOutput, HookedAnswerChecks, Hooks, with_hooks,
};
use architect::machine::{CallIntent, Machine};
use architect::port::{
    Disconnected, EffectContext, EffectNotice, HookPoint, HookRun, Model, NoAnswerChecks, Observer,
    RunEvent,
};
use architect::runner::{InlineExecutor, Ports};
use architect::types::{
    CallAccess, ConversationItem, FaultKind, FileAction, FileChange, RunRules, ToolCall,
    ToolResult, ToolStatus,
};
use serde_json::json;

use crate::kit::model::{FakeCall, call, model, reply, text};
use crate::kit::run::{self, done, output, reason, results};
use crate::kit::tools::{FakeTools, argument, ok};

/// The model's reply to a request.
#[derive(Clone)]
pub(crate) enum ScriptedReply {
    Text(&'static str),
    /// Writes files: path and content of each.
    Writes(&'static [(&'static str, &'static str)]),
    Fails(FaultKind),
}

/// The requests to the model, and the hooks that ran.
#[derive(Default)]
pub(crate) struct RecordedRun {
    pub(crate) system: Vec<String>,
    pub(crate) tools: Vec<Vec<String>>,
    pub(crate) hook_runs: Vec<HookRun>,
}

pub(crate) type SharedRecord = Arc<Mutex<RecordedRun>>;

impl From<ScriptedReply> for FakeCall {
    fn from(scripted: ScriptedReply) -> Self {
        match scripted {
            ScriptedReply::Text(answer) => text(answer).into(),
            ScriptedReply::Writes(files) => {
                let write = |(index, (path, content)): (usize, &(&str, &str))| {
                    let arguments = json!({ "path": path, "content": content }).to_string();
                    call(&format!("call-{index}"), "write_file", &arguments)
                };
                reply(files.iter().enumerate().map(write)).into()
            }
            ScriptedReply::Fails(kind) => Self::failing(kind),
        }
    }
}

/// Returns a model that records its requests.
fn recording_model(replies: &[ScriptedReply], record: &SharedRecord) -> Box<dyn Model> {
    let (replies, record) = (replies.to_vec(), Arc::clone(record));
    let mut replies = replies.into_iter();
    model(move |request| {
        let mut record = record.lock().unwrap();
        record.system.push(request.system.to_string());
        record.tools.push(request.tools.iter().map(|tool| tool.name.to_string()).collect());
        replies.next().map_or_else(|| FakeCall::failing(FaultKind::Request), FakeCall::from)
    })
}

/// Returns a tool that writes any file except those with `secret` in their name.
fn file_tools(folder: PathBuf) -> FakeTools {
    let write = move |call: &ToolCall, _: &EffectContext| {
        let (path, content) = (argument(call, "path").unwrap(), argument(call, "content").unwrap());
        fs::write(folder.join(&path), content).unwrap();
        let action = FileAction::Created;
        let changes = vec![FileChange { path: path.into(), action, added: 1, removed: 0 }];
        ToolResult { changes, ..ok(call, "written") }
    };
    let path = |call: &ToolCall| argument(call, "path");
    FakeTools::new(&["read_file", "write_file"], write)
        .with_access(move |call| {
            path(call).map_or(CallAccess::Exclusive, |path| CallAccess::write(&path))
        })
        .with_authorization(move |call| {
            let error = |status, text: &str| Err(ToolResult::new(call.id.clone(), status, text));
            match path(call) {
                None => error(ToolStatus::Malformed, "path is missing"),
                Some(path) if path.contains("secret") => error(ToolStatus::Denied, "by the rules"),
                Some(_) => Ok(CallIntent::Opaque),
            }
        })
}

struct HookRecorder(SharedRecord);

impl Observer for HookRecorder {
    fn on_event(&mut self, event: &RunEvent<'_>) -> Result<(), Disconnected> {
        if let RunEvent::Notice { notice: EffectNotice::Hook(run), .. } = event {
            self.0.lock().unwrap().hook_runs.push(run.clone());
        }
        Ok(())
    }
}

/// A run that has ended.
pub(crate) struct FinishedRun {
    machine: Machine,
    pub(crate) record: RecordedRun,
    folder: tempfile::TempDir,
}

/// Runs a task with these hooks.
pub(crate) fn run(replies: &[ScriptedReply], hooks: Hooks) -> FinishedRun {
    run_in(tempfile::tempdir().unwrap(), replies, hooks)
}

pub(crate) fn run_in(
    folder: tempfile::TempDir,
    replies: &[ScriptedReply],
    hooks: Hooks,
) -> FinishedRun {
    let (record, hooks) = (SharedRecord::default(), Arc::new(hooks));
    let tools = Arc::new(file_tools(folder.path().to_owned()));
    let model = recording_model(replies, &record);
    let (model, tools, pre_call_hooks) =
        with_hooks((model, tools), &hooks, ("the task".into(), "system".into()));
    let ports = Ports {
        tools: Arc::new(tools),
        observer: Box::new(HookRecorder(Arc::clone(&record))),
        checks: Arc::new(HookedAnswerChecks::new(Arc::new(NoAnswerChecks), hooks)),
        pre_call_hooks: Arc::new(pre_call_hooks),
        ..Ports::new(Box::new(model))
    };
    let rules = RunRules { has_checks: true, ..RunRules::default() };
    let machine = run::run(InlineExecutor::new(), rules, ports);
    let record = std::mem::take(&mut *record.lock().unwrap());
    FinishedRun { machine, record, folder }
}

impl FinishedRun {
    /// Returns the stop reason and the final answer.
    pub(crate) fn outcome(&self) -> (&'static str, String) {
        (reason(&self.machine).name(), output(&self.machine).to_owned())
    }

    /// Returns the error with which it ended.
    pub(crate) fn error(&self) -> &str {
        done(&self.machine).outcome.error.as_deref().unwrap_or_default()
    }

    /// Returns the results of all tool calls.
    pub(crate) fn results(&self) -> Vec<(ToolStatus, String)> {
        let results = results(&self.machine).into_iter();
        results.map(|result| (result.status, result.text.to_string())).collect()
    }

    /// Returns the messages to the model after the task.
    pub(crate) fn messages_to_model(&self) -> Vec<String> {
        let entries = self.machine.conversation.entries().iter();
        let texts = entries.filter_map(|entry| match &entry.item {
            ConversationItem::User(message) => Some(message.text.to_string()),
            _ => None,
        });
        texts.skip(1).collect()
    }

    pub(crate) fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join(name)).ok()
    }
}

/// The points at which hooks ran, in order.
pub(crate) type PointLog = Arc<Mutex<Vec<&'static str>>>;

/// Returns hooks that only record their points.
pub(crate) fn logging_hooks(log: &PointLog) -> Hooks {
    HookPoint::ALL.into_iter().fold(Hooks::new(), |hooks, point| {
        let log = Arc::clone(log);
        let note = move |input: &HookInput, _: &EffectContext| {
            log.lock().unwrap().push(input.point().as_str());
            Ok(HookOutput::default())
        };
        hooks.with(HookMatcher::for_point(point, "log"), note)
    })
}

/// Returns a hook that always gives the same answer.
pub(crate) fn always_answer(
    answer: HookOutput,
) -> impl Fn(&HookInput, &EffectContext) -> Result<HookOutput, HookError> + Send + Sync + 'static {
    move |_, _| Ok(answer.clone())
}

pub(crate) fn denial(reason: &str) -> HookOutput {
    HookOutput::Block { reason: reason.to_owned() }
}
