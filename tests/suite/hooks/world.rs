//! A run with hooks: a model that says what it was told to, and a tool that writes real files.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use architect::hooks::{
    Answer, HookError, HookedChecks, HookedTools, Hooks, Occasion, Place, around,
};
use architect::machine::{Conversation, Fold, Intent, State};
use architect::model::{
    Access, Arguments, Fault, FaultKind, FileAction, FileChange, Finish, Item, Origin, Part, Reply,
    Rules, Span, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{
    Ask, Delta, Gone, HookPoint, HookRun, Job, Model, ModelCall, NoChecks, NoJournal, NoMail,
    Notice, Observer, Scope, Seen, ToolSpec, Toolbox, Vetted,
};
use architect::runner::{Brief, Driver, Inline, Ports};

/// What the model does when it is asked.
#[derive(Clone)]
pub(crate) enum Says {
    Text(&'static str),
    /// Writes files: path and content of each.
    Writes(&'static [(&'static str, &'static str)]),
    Fails(FaultKind),
}

/// What the model was asked, and what was told meanwhile.
#[derive(Default)]
pub(crate) struct Noticed {
    pub(crate) system: Vec<String>,
    pub(crate) tools: Vec<Vec<String>>,
    pub(crate) told: Vec<HookRun>,
}

pub(crate) type Shared = Arc<Mutex<Noticed>>;

struct Scripted(VecDeque<Says>, Shared);

struct Saying(Says);

impl Model for Scripted {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut noticed = self.1.lock().unwrap();
        noticed.system.push(ask.system.to_string());
        noticed.tools.push(ask.tools.iter().map(|tool| tool.name.to_string()).collect());
        let nothing = || Fault::new(FaultKind::Request, "nothing left to say");
        Ok(Box::new(Saying(self.0.pop_front().ok_or_else(nothing)?)))
    }
}

impl ModelCall for Saying {
    fn run(self: Box<Self>, _: &Scope, _: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        let reply = |parts: Vec<Part>, finish| {
            Ok(Reply { parts: parts.into(), finish, usage: Usage::default(), model: None })
        };
        match self.0 {
            Says::Text(text) => reply(vec![Part::Text(text.into())], Finish::Stop),
            Says::Writes(files) => {
                let call = |(index, (path, content)): (usize, &(&str, &str))| {
                    let arguments = serde_json::json!({ "path": path, "content": content });
                    let id = format!("call-{index}");
                    let arguments = arguments.to_string();
                    Part::Call(ToolCall::new(id.as_str().into(), "write_file", &arguments))
                };
                reply(files.iter().enumerate().map(call).collect(), Finish::ToolCalls)
            }
            Says::Fails(kind) => Err(Fault::new(kind, "it failed")),
        }
    }
}

/// Writes files, but none whose name says that it is secret.
struct Tools(PathBuf);

struct Writing(ToolCall, PathBuf, String);

fn argument(call: &ToolCall, name: &str) -> Option<String> {
    let Arguments::Complete { text } = &call.arguments else { return None };
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    value[name].as_str().map(str::to_owned)
}

impl Toolbox for Tools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: "".into(),
            schema: serde_json::json!({ "type": "object" }),
        };
        ["read_file", "write_file"].map(spec).into()
    }

    fn access(&self, call: &ToolCall) -> Access {
        argument(call, "path").map_or(Access::Exclusive, |path| Access::write(&path))
    }

    fn refusal(&self, call: &ToolCall) -> Option<ToolResult> {
        let answer = |status, text: &str| Some(ToolResult::new(call.id.clone(), status, text));
        match argument(call, "path") {
            None => answer(ToolStatus::Malformed, "path is missing"),
            Some(path) if path.contains("secret") => answer(ToolStatus::Denied, "by the rules"),
            Some(_) => None,
        }
    }

    fn vet(&self, call: &ToolCall, _: &Scope) -> Vetted {
        if let Some(result) = self.refusal(call) {
            return Vetted::Refused(result);
        }
        let path = argument(call, "path").unwrap();
        Vetted::Cleared {
            job: Box::new(Writing(call.clone(), self.0.clone(), path)),
            limit: Span::secs(60),
            intent: Intent::Opaque,
            grounds: "".into(),
        }
    }
}

impl Job for Writing {
    fn run(self: Box<Self>, _: &Scope) -> ToolResult {
        let Self(call, folder, path) = *self;
        fs::write(folder.join(&path), argument(&call, "content").unwrap()).unwrap();
        let mut result = ToolResult::new(call.id, ToolStatus::Ok, "written");
        let change =
            FileChange { path: path.into(), action: FileAction::Created, added: 1, removed: 0 };
        result.changes.push(change);
        result
    }
}

struct Watcher(Shared);

impl Observer for Watcher {
    fn see(&mut self, seen: &Seen<'_>) -> Result<(), Gone> {
        if let Seen::Notice { notice: Notice::Hook(run), .. } = seen {
            self.0.lock().unwrap().told.push(run.clone());
        }
        Ok(())
    }
}

/// What became of a run.
pub(crate) struct Ended {
    pub(crate) fold: Fold,
    pub(crate) noticed: Noticed,
    pub(crate) folder: tempfile::TempDir,
}

/// Runs a task with these hooks.
pub(crate) fn run(says: &[Says], hooks: Hooks) -> Ended {
    run_in(tempfile::tempdir().unwrap(), says, hooks)
}

pub(crate) fn run_in(folder: tempfile::TempDir, says: &[Says], hooks: Hooks) -> Ended {
    let (noticed, hooks) = (Shared::default(), Arc::new(hooks));
    let tools = Arc::new(Tools(folder.path().to_owned()));
    let tools = Arc::new(HookedTools::new(tools, Arc::clone(&hooks)));
    let brief = Brief { system: "system".into(), tools: tools.specs(), schema: None };
    let model = Box::new(Scripted(says.to_vec().into(), Arc::clone(&noticed)));
    let (system, specs) = (Arc::clone(&brief.system), Arc::clone(&brief.tools));
    let (model, prelude) = around(model, Arc::clone(&hooks), "the task".into(), system, specs);
    let ports = Ports {
        model: Box::new(model),
        tools,
        journal: Box::new(NoJournal),
        observer: Box::new(Watcher(Arc::clone(&noticed))),
        mailbox: Box::new(NoMail),
        checks: Arc::new(HookedChecks::new(Arc::new(NoChecks), hooks)),
        prelude: Arc::new(prelude),
    };
    let rules = Rules { checked: true, ..Rules::default() };
    let task = Item::user(Origin::Task, "the task");
    let (fold, first) = Fold::start(rules, Conversation::new(brief.bytes()), task);
    let fold = Driver::new(Inline::new(), ports, brief, fold).run(first);
    let noticed = std::mem::take(&mut *noticed.lock().unwrap());
    Ended { fold, noticed, folder }
}

impl Ended {
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
            Item::Exchange(exchange) => Some(exchange.results()),
            _ => None,
        });
        results.flatten().map(|result| (result.status, result.text.to_string())).collect()
    }

    /// Returns what the model was told beside the task.
    pub(crate) fn told(&self) -> Vec<String> {
        let entries = self.fold.conversation.entries().iter();
        let texts = entries.filter_map(|entry| match &entry.item {
            Item::User(message) => Some(message.text.to_string()),
            _ => None,
        });
        texts.skip(1).collect()
    }

    pub(crate) fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join(name)).ok()
    }
}

/// Every point at which the run asked, in order.
pub(crate) type Log = Arc<Mutex<Vec<&'static str>>>;

/// Returns hooks that only write down at which points they are asked.
pub(crate) fn logging(log: &Log) -> Hooks {
    HookPoint::ALL.into_iter().fold(Hooks::new(), |hooks, point| {
        let log = Arc::clone(log);
        let note = move |occasion: &Occasion, _: &Scope| {
            log.lock().unwrap().push(occasion.point().name());
            Ok(Answer::default())
        };
        hooks.with(Place::at(point, "log"), note)
    })
}

/// Returns a hook that always says the same.
pub(crate) fn always(
    answer: Answer,
) -> impl Fn(&Occasion, &Scope) -> Result<Answer, HookError> + Send + Sync + 'static {
    move |_, _| Ok(answer.clone())
}

pub(crate) fn no(reason: &str) -> Answer {
    Answer::Block { reason: reason.to_owned() }
}
