//! A run with hooks: a model that says what it was told to, and a tool that writes real files.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use architect::hooks::{
    HookError, HookInput, HookMatcher, HookOutput, HookedAnswerChecks, HookedTools, Hooks,
    with_hooks,
};
use architect::machine::{CallIntent, Conversation, Machine, State};
use architect::model::{
    CallAccess, ConversationItem, Fault, FaultKind, FileAction, FileChange, MessageOrigin, Reply,
    ReplyFinish, ReplyPart, RunRules, TimeSpan, ToolArguments, ToolCall, ToolResult, ToolStatus,
    Usage,
};
use architect::port::{
    ApprovedCall, AuthorizationOutcome, Disconnected, EffectContext, EffectNotice, HookPoint,
    HookRun, Model, ModelCall, ModelRequest, NoAnswerChecks, NoJournal, NoMessages, Observer,
    PreparedCall, ReplyDelta, RunEvent, ToolSpec, Toolbox,
};
use architect::runner::{Driver, InlineExecutor, Ports, RequestContext};

/// What the model does when it is asked.
#[derive(Clone)]
pub(crate) enum ScriptedReply {
    Text(&'static str),
    /// Writes files: path and content of each.
    Writes(&'static [(&'static str, &'static str)]),
    Fails(FaultKind),
}

/// What the model was asked, and what was told meanwhile.
#[derive(Default)]
pub(crate) struct RecordedRun {
    pub(crate) system: Vec<String>,
    pub(crate) tools: Vec<Vec<String>>,
    pub(crate) hook_runs: Vec<HookRun>,
}

pub(crate) type SharedRecord = Arc<Mutex<RecordedRun>>;

struct ScriptedModel(VecDeque<ScriptedReply>, SharedRecord);

struct ScriptedCall(ScriptedReply);

impl Model for ScriptedModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut noticed = self.1.lock().unwrap();
        noticed.system.push(ask.system.to_string());
        noticed.tools.push(ask.tools.iter().map(|tool| tool.name.to_string()).collect());
        let nothing = || Fault::new(FaultKind::Request, "nothing left to say");
        Ok(Box::new(ScriptedCall(self.0.pop_front().ok_or_else(nothing)?)))
    }
}

impl ModelCall for ScriptedCall {
    fn run(
        self: Box<Self>,
        _: &EffectContext,
        _: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        let reply = |parts: Vec<ReplyPart>, finish| {
            Ok(Reply { parts: parts.into(), finish, usage: Usage::default(), model: None })
        };
        match self.0 {
            ScriptedReply::Text(text) => {
                reply(vec![ReplyPart::Text(text.into())], ReplyFinish::Stop)
            }
            ScriptedReply::Writes(files) => {
                let call = |(index, (path, content)): (usize, &(&str, &str))| {
                    let arguments = serde_json::json!({ "path": path, "content": content });
                    let id = format!("call-{index}");
                    let arguments = arguments.to_string();
                    ReplyPart::Call(ToolCall::new(id.as_str().into(), "write_file", &arguments))
                };
                reply(files.iter().enumerate().map(call).collect(), ReplyFinish::ToolCalls)
            }
            ScriptedReply::Fails(kind) => Err(Fault::new(kind, "it failed")),
        }
    }
}

/// Writes files, but none whose name says that it is secret.
struct FileTools(PathBuf);

struct WriteJob(ToolCall, PathBuf, String);

fn argument(call: &ToolCall, name: &str) -> Option<String> {
    let ToolArguments::Complete { text } = &call.arguments else { return None };
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    value[name].as_str().map(str::to_owned)
}

impl Toolbox for FileTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: "".into(),
            schema: serde_json::json!({ "type": "object" }),
        };
        ["read_file", "write_file"].map(spec).into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        Box::new(FileCall(self.0.clone(), call.clone()))
    }
}

struct FileCall(PathBuf, ToolCall);

impl PreparedCall for FileCall {
    fn access(&mut self) -> CallAccess {
        argument(&self.1, "path").map_or(CallAccess::Exclusive, |path| CallAccess::write(&path))
    }

    fn rejection(&mut self) -> Option<ToolResult> {
        let answer = |status, text: &str| Some(ToolResult::new(self.1.id.clone(), status, text));
        match argument(&self.1, "path") {
            None => answer(ToolStatus::Malformed, "path is missing"),
            Some(path) if path.contains("secret") => answer(ToolStatus::Denied, "by the rules"),
            Some(_) => None,
        }
    }

    fn authorize(mut self: Box<Self>, _: &EffectContext) -> AuthorizationOutcome {
        if let Some(result) = self.rejection() {
            return AuthorizationOutcome::Rejected(result);
        }
        let Self(folder, call) = *self;
        let path = argument(&call, "path").unwrap();
        AuthorizationOutcome::Approved {
            call: Box::new(WriteJob(call, folder, path)),
            timeout: TimeSpan::from_secs(60),
            intent: CallIntent::Opaque,
            reason: "".into(),
        }
    }
}

impl ApprovedCall for WriteJob {
    fn run(self: Box<Self>, _: &EffectContext) -> ToolResult {
        let Self(call, folder, path) = *self;
        fs::write(folder.join(&path), argument(&call, "content").unwrap()).unwrap();
        let mut result = ToolResult::new(call.id, ToolStatus::Ok, "written");
        let change =
            FileChange { path: path.into(), action: FileAction::Created, added: 1, removed: 0 };
        result.changes.push(change);
        result
    }
}

struct HookRecorder(SharedRecord);

impl Observer for HookRecorder {
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        if let RunEvent::Notice { notice: EffectNotice::Hook(run), .. } = seen {
            self.0.lock().unwrap().hook_runs.push(run.clone());
        }
        Ok(())
    }
}

/// What became of a run.
pub(crate) struct FinishedRun {
    pub(crate) fold: Machine,
    pub(crate) noticed: RecordedRun,
    pub(crate) folder: tempfile::TempDir,
}

/// Runs a task with these hooks.
pub(crate) fn run(says: &[ScriptedReply], hooks: Hooks) -> FinishedRun {
    run_in(tempfile::tempdir().unwrap(), says, hooks)
}

pub(crate) fn run_in(
    folder: tempfile::TempDir,
    says: &[ScriptedReply],
    hooks: Hooks,
) -> FinishedRun {
    let (noticed, hooks) = (SharedRecord::default(), Arc::new(hooks));
    let tools = Arc::new(FileTools(folder.path().to_owned()));
    let tools = Arc::new(HookedTools::new(tools, Arc::clone(&hooks)));
    let brief = RequestContext { system: "system".into(), tools: tools.specs(), schema: None };
    let model = Box::new(ScriptedModel(says.to_vec().into(), Arc::clone(&noticed)));
    let (system, specs) = (Arc::clone(&brief.system), Arc::clone(&brief.tools));
    let (model, prelude) = with_hooks(model, Arc::clone(&hooks), "the task".into(), system, specs);
    let ports = Ports {
        model: Box::new(model),
        tools,
        journal: Box::new(NoJournal),
        observer: Box::new(HookRecorder(Arc::clone(&noticed))),
        messages: Box::new(NoMessages),
        checks: Arc::new(HookedAnswerChecks::new(Arc::new(NoAnswerChecks), hooks)),
        pre_call_hooks: Arc::new(prelude),
    };
    let rules = RunRules { has_checks: true, ..RunRules::default() };
    let task = ConversationItem::user(MessageOrigin::Task, "the task");
    let (fold, first) = Machine::start(rules, Conversation::new(brief.request_bytes()), task);
    let fold = Driver::new(InlineExecutor::new(), ports, brief, fold).run(first);
    let noticed = std::mem::take(&mut *noticed.lock().unwrap());
    FinishedRun { fold, noticed, folder }
}

impl FinishedRun {
    /// Returns why the run ended, and what it said then.
    pub(crate) fn outcome(&self) -> (&'static str, String) {
        let State::Done(done) = &self.fold.state else { panic!("not done") };
        let output = done.outcome.output.as_deref().unwrap_or_default();
        (done.outcome.reason.name(), output.to_owned())
    }

    /// Returns what went wrong in the end.
    pub(crate) fn error(&self) -> String {
        let State::Done(done) = &self.fold.state else { panic!("not done") };
        done.outcome.error.as_deref().unwrap_or_default().to_owned()
    }

    /// Returns the results of all tool calls.
    pub(crate) fn results(&self) -> Vec<(ToolStatus, String)> {
        let entries = self.fold.conversation.entries().iter();
        let results = entries.filter_map(|entry| match &entry.item {
            ConversationItem::Exchange(exchange) => Some(exchange.results()),
            _ => None,
        });
        results.flatten().map(|result| (result.status, result.text.to_string())).collect()
    }

    /// Returns what the model was told beside the task.
    pub(crate) fn messages_to_model(&self) -> Vec<String> {
        let entries = self.fold.conversation.entries().iter();
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

/// Every point at which the run asked, in order.
pub(crate) type PointLog = Arc<Mutex<Vec<&'static str>>>;

/// Returns hooks that only write down at which points they are asked.
pub(crate) fn logging_hooks(log: &PointLog) -> Hooks {
    HookPoint::ALL.into_iter().fold(Hooks::new(), |hooks, point| {
        let log = Arc::clone(log);
        let note = move |occasion: &HookInput, _: &EffectContext| {
            log.lock().unwrap().push(occasion.point().name());
            Ok(HookOutput::default())
        };
        hooks.with(HookMatcher::for_point(point, "log"), note)
    })
}

/// Returns a hook that always says the same.
pub(crate) fn always_answer(
    answer: HookOutput,
) -> impl Fn(&HookInput, &EffectContext) -> Result<HookOutput, HookError> + Send + Sync + 'static {
    move |_, _| Ok(answer.clone())
}

pub(crate) fn denial(reason: &str) -> HookOutput {
    HookOutput::Block { reason: reason.to_owned() }
}
