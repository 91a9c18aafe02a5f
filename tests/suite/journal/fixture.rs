//! A small world for sessions: a store, a workspace, a model with a script, and three kinds of tools.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use architect::journal::{
    DamagePolicy, Durability, FileJournal, JournalError, NewSession, OpenedSession, ResumeOptions,
    ResumedSession, SessionHistory, SessionId, SessionSetup, SessionStore, WorkspaceIdentity,
};
use architect::machine::{CallIntent, ConversationEntry, FileDigests, Machine, MachineOutput};
use architect::model::{
    CallAccess, ConversationItem, Fault, FileAction, FileChange, MessageOrigin, Price, Reply,
    ReplyFinish, ReplyPart, RunRules, RunTime, TimeSpan, Tokens, ToolCall, ToolResult, ToolStatus,
    Usage,
};
use architect::port::{
    ApprovedCall, AuthorizationOutcome, EffectContext, Journal, MessageSource, Model, ModelCall,
    ModelRequest, NoAnswerChecks, NoObserver, Observer, PreparedCall, ReplyDelta, ToolSpec,
    Toolbox,
};
use architect::runner::{
    Driver, DriverInputSender, Executor, InlineExecutor, Ports, RequestContext, SystemClock,
    ThreadExecutor,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A store and a workspace. The folder goes away with it, when it is its own.
pub(crate) struct SessionFixture {
    pub(crate) store: SessionStore,
    pub(crate) root: PathBuf,
    _temp: Option<tempfile::TempDir>,
}

impl SessionFixture {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let world = Self::at(temp.path(), Durability::Os);
        Self { _temp: Some(temp), ..world }
    }

    pub(crate) fn at(root: &Path, durability: Durability) -> Self {
        Self::try_at(root, durability).unwrap()
    }

    pub(crate) fn try_at(root: &Path, durability: Durability) -> Result<Self, JournalError> {
        let workspace = root.join("workspace");
        if let Err(source) = fs::create_dir_all(&workspace) {
            return Err(JournalError::Io { operation: "make", path: workspace, source });
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
            tools: FixtureTools::new(self).specs(),
            schema: None,
            options: Value::Null,
        })
    }

    /// Begins a session, without doing anything.
    pub(crate) fn begin(&self) -> (FileJournal, Machine, MachineOutput) {
        self.try_begin().unwrap()
    }

    pub(crate) fn try_begin(&self) -> Result<(FileJournal, Machine, MachineOutput), JournalError> {
        self.try_begin_by(rules())
    }

    /// Begins a session that obeys other rules.
    pub(crate) fn try_begin_by(
        &self,
        rules: RunRules,
    ) -> Result<(FileJournal, Machine, MachineOutput), JournalError> {
        let begin = NewSession {
            now: SystemTime::now(),
            dispatched_by: None,
            setup: self.setting()?,
            rules,
            fixed_bytes: 100,
            history: vec![],
            task: ConversationItem::user(MessageOrigin::Task, "do it"),
        };
        let (journal, header) = self.store.create(SessionId::generate(), begin)?;
        let (fold, outcomes) = header.start_machine();
        Ok((journal, fold, outcomes))
    }

    /// Begins a session and lets it run to its end.
    pub(crate) fn run(&self) -> (SessionId, Machine) {
        let (journal, fold, outcomes) = self.begin();
        let session = journal.session();
        (session, self.drive(journal, fold, outcomes, RunTime::START))
    }

    pub(crate) fn drive(
        &self,
        journal: FileJournal,
        fold: Machine,
        outcomes: MachineOutput,
        from: RunTime,
    ) -> Machine {
        self.drive_with(Participants::new(journal), fold, outcomes, from)
    }

    pub(crate) fn drive_with(
        &self,
        cast: Participants,
        fold: Machine,
        outcomes: MachineOutput,
        from: RunTime,
    ) -> Machine {
        self.drive_with_inbox(cast, fold, outcomes, from, |_| Box::new(NoObserver))
    }

    /// Plays before somebody who can put something into the inbox.
    pub(crate) fn drive_with_inbox(
        &self,
        cast: Participants,
        fold: Machine,
        outcomes: MachineOutput,
        from: RunTime,
        observer: impl FnOnce(DriverInputSender) -> Box<dyn Observer>,
    ) -> Machine {
        let hands = ThreadExecutor::new(Arc::new(SystemClock::resume(from)), 4);
        let observer = observer(hands.inbox());
        self.drive_on(hands, cast, observer, fold, outcomes)
    }

    /// Plays all parts on this thread.
    pub(crate) fn drive_inline(
        &self,
        journal: FileJournal,
        fold: Machine,
        outcomes: MachineOutput,
        from: RunTime,
    ) -> Machine {
        let (hands, cast) = (InlineExecutor::resume(from), Participants::new(journal));
        self.drive_on(hands, cast, Box::new(NoObserver), fold, outcomes)
    }

    fn drive_on(
        &self,
        hands: impl Executor,
        cast: Participants,
        observer: Box<dyn Observer>,
        fold: Machine,
        outcomes: MachineOutput,
    ) -> Machine {
        let Participants { journal, mail: mailbox, model } = cast;
        let (tools, checks) = (Arc::new(FixtureTools::new(self)), Arc::new(NoAnswerChecks));
        let brief =
            RequestContext { system: "You are a test.".into(), tools: tools.specs(), schema: None };
        let ports =
            Ports { tools, journal, observer, messages: mailbox, checks, ..Ports::new(model) };
        Driver::new(hands, ports, brief, fold).run(outcomes)
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
        })
    }

    /// Goes on with a session, to its end.
    pub(crate) fn resume(&self, session: SessionId, prompt: Option<&str>) -> Machine {
        let opened = self.reopen(session);
        let at = opened.history.at;
        let ResumedSession { journal, machine: fold, output: outcomes, .. } =
            opened.resume(self.resume_options(prompt)).unwrap();
        self.drive(journal, fold, outcomes, at)
    }

    pub(crate) fn history(&self, session: SessionId) -> SessionHistory {
        self.store.replay(session, |_, _, _| {}).unwrap().0
    }

    /// What commands have written, line by line: each line is a command that ran.
    pub(crate) fn command_log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.workspace().join("ran.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.workspace().join(name)).ok()
    }
}

/// Who takes part in a run.
pub(crate) struct Participants {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) mail: Box<dyn MessageSource>,
    pub(crate) model: Box<dyn Model>,
}

impl Participants {
    pub(crate) fn new(journal: FileJournal) -> Self {
        let mail = Box::new(journal.queue());
        Self { journal: Box::new(journal), mail, model: Box::new(ScriptModel) }
    }
}

pub(crate) fn rules() -> RunRules {
    // A dollar for a million tokens of input, ten for output: a call of this world costs two hundredths of a cent.
    let price = Price { input: 1_000_000, output: 10_000_000, ..Price::default() };
    RunRules { seed: 7, has_checks: true, price: Some(price), ..RunRules::default() }
}

/// A model that says what its script has at this point of the conversation: a file is written, a command runs, both are
/// looked at together, and that is it. So it goes on in the same way, whichever process asks it.
pub(crate) struct ScriptModel;

/// One call of a tool.
fn call(id: &str, name: &str, arguments: &Value) -> ReplyPart {
    ReplyPart::Call(ToolCall::new(id.into(), name, &arguments.to_string()))
}

fn script_turn(turn: usize) -> Vec<ReplyPart> {
    let text = |text: &str| ReplyPart::Text(text.into());
    match turn {
        0 => vec![
            text("First a file."),
            call("c1", "write", &json!({ "path": "a.txt", "text": "first\n" })),
        ],
        1 => vec![call("c2", "run", &json!({ "command": "echo ran >> ran.log" }))],
        2 => vec![
            call("c3", "read", &json!({ "path": "a.txt" })),
            call("c4", "write", &json!({ "path": "b.txt", "text": "second\n" })),
        ],
        _ => vec![text("Done.")],
    }
}

/// Returns how many replies a conversation has.
pub(crate) fn count_replies(entries: &[ConversationEntry]) -> usize {
    entries.iter().filter(|entry| !matches!(entry.item, ConversationItem::User(_))).count()
}

pub(crate) fn reply(parts: Vec<ReplyPart>) -> Reply {
    let finish = match parts.iter().any(|part| matches!(part, ReplyPart::Call(_))) {
        true => ReplyFinish::ToolCalls,
        false => ReplyFinish::Stop,
    };
    let usage = Usage { input: Tokens(100), output: Tokens(10), ..Usage::default() };
    Reply { parts: parts.into(), finish, usage, model: Some("scripted".into()) }
}

impl Model for ScriptModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        Ok(Box::new(ImmediateReply(reply(script_turn(count_replies(ask.entries))))))
    }
}

/// A reply that comes at once.
pub(crate) struct ImmediateReply(pub(crate) Reply);

impl ModelCall for ImmediateReply {
    fn run(
        self: Box<Self>,
        _: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        sink(ReplyDelta::Started);
        sink(ReplyDelta::Text(self.0.text().to_string()));
        Ok(self.0)
    }
}

/// Three tools: one that changes nothing, one that replaces a file, and one of which nobody knows.
#[derive(Clone)]
pub(crate) struct FixtureTools {
    workspace: PathBuf,
}

impl FixtureTools {
    pub(crate) fn new(world: &SessionFixture) -> Self {
        Self { workspace: world.workspace() }
    }
}

/// What a call does when it runs.
struct FixtureCall {
    call: ToolCall,
    workspace: PathBuf,
}

fn argument(call: &ToolCall, name: &str) -> String {
    let arguments: Value = serde_json::from_str(call.arguments.text()).unwrap();
    arguments[name].as_str().unwrap().to_owned()
}

pub(crate) fn sha256(text: &[u8]) -> Arc<str> {
    let mut hex = String::new();
    for byte in Sha256::digest(text) {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex.into()
}

impl Toolbox for FixtureTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        ["read", "write", "run"]
            .map(|name| ToolSpec {
                name: name.into(),
                description: "A tool.".into(),
                schema: json!({ "type": "object" }),
            })
            .into()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let (tools, call) = (self.clone(), call.clone());
        <dyn PreparedCall>::from_fn(tools.access(&call), move |scope| tools.authorize(&call, scope))
    }
}

impl FixtureTools {
    fn access(&self, call: &ToolCall) -> CallAccess {
        match &*call.name {
            "read" => CallAccess::read(&argument(call, "path")),
            "write" => CallAccess::write(&argument(call, "path")),
            _ => CallAccess::Exclusive,
        }
    }

    fn authorize(&self, call: &ToolCall, _: &EffectContext) -> AuthorizationOutcome {
        let intent = match &*call.name {
            "read" => CallIntent::ReadOnly,
            "write" => {
                let path = argument(call, "path");
                let before = fs::read(self.workspace.join(&path)).ok();
                CallIntent::Edit {
                    files: [FileDigests {
                        before: before.map(|text| sha256(&text)),
                        after: Some(sha256(argument(call, "text").as_bytes())),
                        path: path.into(),
                    }]
                    .into(),
                }
            }
            _ => CallIntent::Opaque,
        };
        AuthorizationOutcome::Approved {
            call: Box::new(FixtureCall { call: call.clone(), workspace: self.workspace.clone() }),
            timeout: TimeSpan::from_secs(60),
            intent,
            reason: "test".into(),
        }
    }
}

impl ApprovedCall for FixtureCall {
    fn run(self: Box<Self>, _: &EffectContext) -> ToolResult {
        match self.perform() {
            Ok(text) => {
                let changes = self.changes();
                ToolResult { changes, ..ToolResult::new(self.call.id, ToolStatus::Ok, text) }
            }
            Err(error) => ToolResult::new(self.call.id, ToolStatus::Failed, error.to_string()),
        }
    }
}

impl FixtureCall {
    fn changes(&self) -> Vec<FileChange> {
        match &*self.call.name {
            "write" => vec![FileChange {
                path: argument(&self.call, "path").into(),
                action: FileAction::Created,
                added: 1,
                removed: 0,
            }],
            _ => vec![],
        }
    }

    fn perform(&self) -> io::Result<String> {
        let argument = |name| argument(&self.call, name);
        match &*self.call.name {
            "read" => fs::read_to_string(self.workspace.join(argument("path"))),
            "write" => {
                let path = self.workspace.join(argument("path"));
                let mut file = tempfile::NamedTempFile::new_in(&self.workspace)?;
                file.write_all(argument("text").as_bytes())?;
                file.persist(path)?;
                Ok("written".to_owned())
            }
            _ => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(argument("command")).current_dir(&self.workspace);
                shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                Ok(format!("ended: {}", shell.status()?))
            }
        }
    }
}
