//! A fixture for sessions: a store, a workspace, a scripted model, and three kinds of tools.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use architect::journal::{
    DamagePolicy, Durability, FileJournal, JournalError, OpenedSession, ResumeOptions,
    ResumedSession, SessionHeader, SessionHistory, SessionId, SessionSetup, SessionStore,
    WorkspaceIdentity,
};
use architect::machine::{CallIntent, ConversationEntry, FileDigests, Machine, MachineOutput};
use architect::port::{
    EffectContext, Journal, MessageSource, Model, NoAnswerChecks, NoObserver, Observer, ReplyDelta,
    Toolbox,
};
use architect::runner::{
    Driver, DriverInputSender, Executor, InlineExecutor, Ports, RequestContext, SystemClock,
    ThreadExecutor,
};
use architect::types::{
    CallAccess, ConversationItem, FileAction, FileChange, MessageOrigin, Price, Reply, ReplyPart,
    RunRules, RunTime, Tokens, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::workspace::IoError;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::kit::model::{FakeCall, call, model};
use crate::kit::tools::{FakeTools, argument, ok};

/// A store and a workspace. Dropping it removes the folder, if the fixture made the folder.
pub(crate) struct SessionFixture {
    pub(crate) store: SessionStore,
    pub(crate) root: PathBuf,
    _temp: Option<tempfile::TempDir>,
}

impl SessionFixture {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let fixture = Self::at(temp.path(), Durability::Os);
        Self { _temp: Some(temp), ..fixture }
    }

    pub(crate) fn at(root: &Path, durability: Durability) -> Self {
        Self::try_at(root, durability).unwrap()
    }

    pub(crate) fn try_at(root: &Path, durability: Durability) -> Result<Self, JournalError> {
        let workspace = root.join("workspace");
        if let Err(source) = fs::create_dir_all(&workspace) {
            return Err(IoError { operation: "make", path: workspace, source }.into());
        }
        let store = SessionStore::open(&root.join("state"), durability)?;
        Ok(Self { store, root: root.to_owned(), _temp: None })
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    pub(crate) fn journal(&self, session: SessionId) -> PathBuf {
        self.root.join(format!("state/sessions/{session}.jsonl"))
    }

    pub(crate) fn session_folder(&self, session: SessionId) -> PathBuf {
        self.root.join(format!("state/sessions/{session}"))
    }

    fn setting(&self) -> Result<SessionSetup, JournalError> {
        Ok(SessionSetup {
            model: "scripted/world".into(),
            agent: "build".into(),
            workspace: WorkspaceIdentity::inspect(&self.workspace())?,
            system: "You are a test.".into(),
            tools: tools(self.workspace()).specs(),
            schema: None,
            requests: Value::Null,
            options: Value::Null,
        })
    }

    /// Creates a session, without running it.
    pub(crate) fn begin(&self) -> (FileJournal, Machine, MachineOutput) {
        self.try_begin().unwrap()
    }

    pub(crate) fn try_begin(&self) -> Result<(FileJournal, Machine, MachineOutput), JournalError> {
        self.try_begin_by(rules())
    }

    /// Creates a session with other rules.
    pub(crate) fn try_begin_by(
        &self,
        rules: RunRules,
    ) -> Result<(FileJournal, Machine, MachineOutput), JournalError> {
        let task = ConversationItem::user(MessageOrigin::Task, "do it");
        let (session, setup) = (SessionId::generate(), self.setting()?);
        let header = SessionHeader::new(session, SystemTime::now(), setup, rules, task);
        let header = SessionHeader { fixed_bytes: 100, ..header };
        let journal = self.store.create(&header)?;
        let (machine, output) = header.start_machine();
        Ok((journal, machine, output))
    }

    /// Creates a session and runs it to its end.
    pub(crate) fn run(&self) -> (SessionId, Machine) {
        let (journal, machine, output) = self.begin();
        let session = journal.session();
        (session, self.drive(journal, machine, output, RunTime::START))
    }

    pub(crate) fn drive(
        &self,
        journal: FileJournal,
        machine: Machine,
        output: MachineOutput,
        from: RunTime,
    ) -> Machine {
        self.drive_with(Participants::new(journal), machine, output, from)
    }

    pub(crate) fn drive_with(
        &self,
        participants: Participants,
        machine: Machine,
        output: MachineOutput,
        from: RunTime,
    ) -> Machine {
        self.drive_with_inbox(participants, machine, output, from, |_| Box::new(NoObserver))
    }

    /// Runs with an observer that can send input.
    pub(crate) fn drive_with_inbox(
        &self,
        participants: Participants,
        machine: Machine,
        output: MachineOutput,
        from: RunTime,
        observer: impl FnOnce(DriverInputSender) -> Box<dyn Observer>,
    ) -> Machine {
        let executor = ThreadExecutor::new(Arc::new(SystemClock::resume(from)), 4);
        let observer = observer(executor.inbox());
        self.drive_on(executor, participants, observer, machine, output)
    }

    /// Runs everything on this thread.
    pub(crate) fn drive_inline(
        &self,
        journal: FileJournal,
        machine: Machine,
        output: MachineOutput,
        from: RunTime,
    ) -> Machine {
        let (executor, participants) = (InlineExecutor::resume(from), Participants::new(journal));
        self.drive_on(executor, participants, Box::new(NoObserver), machine, output)
    }

    fn drive_on(
        &self,
        executor: impl Executor + 'static,
        participants: Participants,
        observer: Box<dyn Observer>,
        machine: Machine,
        output: MachineOutput,
    ) -> Machine {
        let Participants { journal, messages, model } = participants;
        let (tools, checks) = (Arc::new(tools(self.workspace())), Arc::new(NoAnswerChecks));
        let brief =
            RequestContext { system: "You are a test.".into(), tools: tools.specs(), schema: None };
        let ports = Ports { tools, journal, observer, messages, checks, ..Ports::new(model) };
        Driver::new(Box::new(executor), ports, brief, machine).run(output)
    }

    pub(crate) fn reopen(&self, session: SessionId) -> OpenedSession {
        self.store.reopen(session, DamagePolicy::Refuse).unwrap()
    }

    pub(crate) fn resume_options(&self, prompt: Option<&str>) -> ResumeOptions {
        self.try_resume_options(prompt).unwrap()
    }

    pub(crate) fn try_resume_options(
        &self,
        prompt: Option<&str>,
    ) -> Result<ResumeOptions, JournalError> {
        Ok(ResumeOptions {
            now: SystemTime::now(),
            setup: self.setting()?,
            rules: rules(),
            prompt: prompt.map(Arc::from),
            images: Vec::new(),
        })
    }

    /// Resumes a session and runs it to its end.
    pub(crate) fn resume(&self, session: SessionId, prompt: Option<&str>) -> Machine {
        let opened = self.reopen(session);
        let at = opened.history.at;
        let ResumedSession { journal, machine, output, .. } =
            opened.resume(self.resume_options(prompt)).unwrap();
        self.drive(journal, machine, output, at)
    }

    pub(crate) fn history(&self, session: SessionId) -> SessionHistory {
        self.store.load(session).unwrap().0
    }

    /// The output of commands: each line is a command that ran.
    pub(crate) fn command_log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.workspace().join("ran.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.workspace().join(name)).ok()
    }
}

/// The ports of a run.
pub(crate) struct Participants {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) messages: Box<dyn MessageSource>,
    pub(crate) model: Box<dyn Model>,
}

impl Participants {
    pub(crate) fn new(journal: FileJournal) -> Self {
        let messages = Box::new(journal.queue());
        Self { journal: Box::new(journal), messages, model: script_model() }
    }
}

pub(crate) fn rules() -> RunRules {
    // A dollar for a million tokens of input, ten for output: a call of this model costs two hundredths of a cent.
    let price = Price { input: 1_000_000, output: 10_000_000, ..Price::default() };
    RunRules { seed: 7, has_checks: true, price: Some(price), ..RunRules::default() }
}

/// Returns a model that behaves the same in every process, since its replies depend on the conversation alone: it
/// writes a file, runs a command, looks at both, and ends.
pub(crate) fn script_model() -> Box<dyn Model> {
    model(|request| immediate(reply(script_turn(count_replies(request.entries)))))
}

fn script_turn(turn: usize) -> Vec<ReplyPart> {
    let call = |id, name, arguments: Value| call(id, name, &arguments.to_string());
    match turn {
        0 => vec![
            ReplyPart::Text("First a file.".into()),
            call("c1", "write", json!({ "path": "a.txt", "text": "first\n" })),
        ],
        1 => vec![call("c2", "run", json!({ "command": "echo ran >> ran.log" }))],
        2 => vec![
            call("c3", "read", json!({ "path": "a.txt" })),
            call("c4", "write", json!({ "path": "b.txt", "text": "second\n" })),
        ],
        _ => vec![ReplyPart::Text("Done.".into())],
    }
}

/// Returns how many replies a conversation has.
pub(crate) fn count_replies(entries: &[ConversationEntry]) -> usize {
    entries.iter().filter(|entry| !matches!(entry.item, ConversationItem::User(_))).count()
}

pub(crate) fn reply(parts: Vec<ReplyPart>) -> Reply {
    let usage = Usage { input: Tokens(100), output: Tokens(10), ..Usage::default() };
    Reply { usage, model: Some("scripted".into()), ..crate::kit::model::reply(parts) }
}

/// Returns a call that streams its whole text and ends at once.
pub(crate) fn immediate(reply: Reply) -> FakeCall {
    FakeCall::new(|_, sink| {
        sink(ReplyDelta::Started);
        sink(ReplyDelta::Text(reply.text().to_string()));
        Ok(reply)
    })
}

/// Returns three tools: `read` changes nothing, `write` replaces a file, and `run` may do anything.
fn tools(workspace: PathBuf) -> FakeTools {
    let folder = workspace.clone();
    let run = move |call: &ToolCall, _: &EffectContext| match perform(call, &workspace) {
        Ok(text) => ToolResult { changes: changes(call), ..ok(call, &text) },
        Err(error) => ToolResult::new(call.id.clone(), ToolStatus::Failed, error.to_string()),
    };
    FakeTools::new(&["read", "write", "run"], run)
        .with_access(|call| match &*call.name {
            "read" => CallAccess::read(&required(call, "path")),
            "write" => CallAccess::write(&required(call, "path")),
            _ => CallAccess::Exclusive,
        })
        .with_authorization(move |call| match &*call.name {
            "read" => Ok(CallIntent::ReadOnly),
            "write" => {
                let path = required(call, "path");
                let before = fs::read(folder.join(&path)).ok();
                let digests = FileDigests {
                    before: before.map(|text| sha256(&text)),
                    after: Some(sha256(required(call, "text").as_bytes())),
                    path: path.into(),
                };
                Ok(CallIntent::Edit { files: [digests].into() })
            }
            _ => Ok(CallIntent::Opaque),
        })
}

fn required(call: &ToolCall, name: &str) -> String {
    argument(call, name).unwrap()
}

fn changes(call: &ToolCall) -> Vec<FileChange> {
    let path = argument(call, "path").filter(|_| &*call.name == "write");
    let change = |path: String| FileChange {
        path: path.into(),
        action: FileAction::Created,
        added: 1,
        removed: 0,
    };
    path.map(change).into_iter().collect()
}

fn perform(call: &ToolCall, workspace: &Path) -> io::Result<String> {
    match &*call.name {
        "read" => fs::read_to_string(workspace.join(required(call, "path"))),
        "write" => {
            let path = workspace.join(required(call, "path"));
            let mut file = tempfile::NamedTempFile::new_in(workspace)?;
            file.write_all(required(call, "text").as_bytes())?;
            file.persist(path)?;
            Ok("written".to_owned())
        }
        _ => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(required(call, "command")).current_dir(workspace);
            shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Ok(format!("ended: {}", shell.status()?))
        }
    }
}

pub(crate) fn sha256(text: &[u8]) -> Arc<str> {
    let mut hex = String::new();
    for byte in Sha256::digest(text) {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex.into()
}
