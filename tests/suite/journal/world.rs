//! A small world for sessions: a store, a workspace, a model with a script, and three kinds of tools.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use architect::journal::{
    Begin, Durability, FileJournal, GoOn, Going, JournalError, Opened, Past, Repair, SessionId,
    Setting, Store, Workspace,
};
use architect::machine::{Entry, Fold, Image, Intent, Outcomes};
use architect::model::{
    Access, Fault, FileAction, FileChange, Finish, Item, Origin, Part, Price, Reply, Rules, Span,
    Time, Tokens, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::{
    Ask, Delta, Job, Journal, Mailbox, Model, ModelCall, NoChecks, Nobody, Observer, Scope,
    ToolSpec, Toolbox, Vetted,
};
use architect::runner::{Brief, Driver, Hands, Inbox, Inline, Ports, SystemClock, Threads};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A store and a workspace. The folder goes away with it, when it is its own.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) root: PathBuf,
    _temp: Option<tempfile::TempDir>,
}

impl World {
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
            return Err(JournalError::Io { what: "make", path: workspace, source });
        }
        let store = Store::open(&root.join("state"), durability)?;
        Ok(Self { store, root: root.to_owned(), _temp: None })
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    pub(crate) fn journal(&self, session: SessionId) -> PathBuf {
        self.root.join(format!("state/sessions/{session}.jsonl"))
    }

    pub(crate) fn beside(&self, session: SessionId) -> PathBuf {
        self.root.join(format!("state/sessions/{session}"))
    }

    fn setting(&self) -> Result<Setting, JournalError> {
        Ok(Setting {
            model: "scripted/world".into(),
            agent: "build".into(),
            workspace: Workspace::look(&self.workspace())?,
            system: "You are a test.".into(),
            tools: Kit::new(self).specs(),
            schema: None,
            options: Value::Null,
        })
    }

    /// Begins a session, without doing anything.
    pub(crate) fn begin(&self) -> (FileJournal, Fold, Outcomes) {
        self.try_begin().unwrap()
    }

    pub(crate) fn try_begin(&self) -> Result<(FileJournal, Fold, Outcomes), JournalError> {
        self.try_begin_by(rules())
    }

    /// Begins a session that obeys other rules.
    pub(crate) fn try_begin_by(
        &self,
        rules: Rules,
    ) -> Result<(FileJournal, Fold, Outcomes), JournalError> {
        let begin = Begin {
            now: SystemTime::now(),
            dispatched_by: None,
            setting: self.setting()?,
            rules,
            fixed: 100,
            history: vec![],
            task: Item::user(Origin::Task, "do it"),
        };
        let (journal, header) = self.store.create(SessionId::fresh(), begin)?;
        let (fold, outcomes) = header.start();
        Ok((journal, fold, outcomes))
    }

    /// Begins a session and lets it run to its end.
    pub(crate) fn run(&self) -> (SessionId, Fold) {
        let (journal, fold, outcomes) = self.begin();
        let session = journal.session();
        (session, self.drive(journal, fold, outcomes, Time::START))
    }

    pub(crate) fn drive(
        &self,
        journal: FileJournal,
        fold: Fold,
        outcomes: Outcomes,
        from: Time,
    ) -> Fold {
        self.play(Cast::new(journal), fold, outcomes, from)
    }

    pub(crate) fn play(&self, cast: Cast, fold: Fold, outcomes: Outcomes, from: Time) -> Fold {
        self.play_before(cast, fold, outcomes, from, |_| Box::new(Nobody))
    }

    /// Plays before somebody who can put something into the inbox.
    pub(crate) fn play_before(
        &self,
        cast: Cast,
        fold: Fold,
        outcomes: Outcomes,
        from: Time,
        observer: impl FnOnce(Inbox) -> Box<dyn Observer>,
    ) -> Fold {
        let hands = Threads::new(Arc::new(SystemClock::resume(from)), 4);
        let observer = observer(hands.inbox());
        self.play_by(hands, cast, observer, fold, outcomes)
    }

    /// Plays all parts on this thread.
    pub(crate) fn play_alone(
        &self,
        journal: FileJournal,
        fold: Fold,
        outcomes: Outcomes,
        from: Time,
    ) -> Fold {
        let (hands, cast) = (Inline::resume(from), Cast::new(journal));
        self.play_by(hands, cast, Box::new(Nobody), fold, outcomes)
    }

    fn play_by(
        &self,
        hands: impl Hands,
        cast: Cast,
        observer: Box<dyn Observer>,
        fold: Fold,
        outcomes: Outcomes,
    ) -> Fold {
        let Cast { journal, mail: mailbox, model } = cast;
        let (tools, checks) = (Arc::new(Kit::new(self)), Arc::new(NoChecks));
        let brief = Brief { system: "You are a test.".into(), tools: tools.specs(), schema: None };
        let ports = Ports { tools, journal, observer, mailbox, checks, ..Ports::new(model) };
        Driver::new(hands, ports, brief, fold).run(outcomes)
    }

    pub(crate) fn reopen(&self, session: SessionId) -> Opened {
        self.store.reopen(session, Repair::Refuse).unwrap()
    }

    pub(crate) fn how(&self, prompt: Option<&str>) -> GoOn {
        self.try_how(prompt).unwrap()
    }

    pub(crate) fn try_how(&self, prompt: Option<&str>) -> Result<GoOn, JournalError> {
        Ok(GoOn {
            now: SystemTime::now(),
            setting: self.setting()?,
            rules: rules(),
            prompt: prompt.map(Arc::from),
        })
    }

    /// Goes on with a session, to its end.
    pub(crate) fn resume(&self, session: SessionId, prompt: Option<&str>) -> Fold {
        let opened = self.reopen(session);
        let at = opened.past.at;
        let Going { journal, fold, outcomes, .. } = opened.go_on(self.how(prompt)).unwrap();
        self.drive(journal, fold, outcomes, at)
    }

    pub(crate) fn past(&self, session: SessionId) -> Past {
        self.store.replay(session, |_, _, _| {}).unwrap().0
    }

    /// What commands have written, line by line: each line is a command that ran.
    pub(crate) fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.workspace().join("ran.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.workspace().join(name)).ok()
    }
}

/// Who takes part in a run.
pub(crate) struct Cast {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) mail: Box<dyn Mailbox>,
    pub(crate) model: Box<dyn Model>,
}

impl Cast {
    pub(crate) fn new(journal: FileJournal) -> Self {
        let mail = Box::new(journal.mail());
        Self { journal: Box::new(journal), mail, model: Box::new(Script) }
    }
}

pub(crate) fn rules() -> Rules {
    // A dollar for a million tokens of input, ten for output: a call of this world costs two hundredths of a cent.
    let price = Price { input: 1_000_000, output: 10_000_000, ..Price::default() };
    Rules { seed: 7, checked: true, price: Some(price), ..Rules::default() }
}

/// A model that says what its script has at this point of the conversation: a file is written, a command runs, both are
/// looked at together, and that is it. So it goes on in the same way, whichever process asks it.
pub(crate) struct Script;

/// One call of a tool.
fn call(id: &str, name: &str, arguments: &Value) -> Part {
    Part::Call(ToolCall::new(id.into(), name, &arguments.to_string()))
}

fn script(turn: usize) -> Vec<Part> {
    let text = |text: &str| Part::Text(text.into());
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
pub(crate) fn turns(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| !matches!(entry.item, Item::User(_))).count()
}

pub(crate) fn reply(parts: Vec<Part>) -> Reply {
    let finish = match parts.iter().any(|part| matches!(part, Part::Call(_))) {
        true => Finish::ToolCalls,
        false => Finish::Stop,
    };
    let usage = Usage { input: Tokens(100), output: Tokens(10), ..Usage::default() };
    Reply { parts: parts.into(), finish, usage, model: Some("scripted".into()) }
}

impl Model for Script {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        Ok(Box::new(Say(reply(script(turns(ask.entries))))))
    }
}

/// A reply that comes at once.
pub(crate) struct Say(pub(crate) Reply);

impl ModelCall for Say {
    fn run(self: Box<Self>, _: &Scope, sink: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        sink(Delta::Begun);
        sink(Delta::Text(self.0.text().to_string()));
        Ok(self.0)
    }
}

/// Three tools: one that changes nothing, one that replaces a file, and one of which nobody knows.
pub(crate) struct Kit {
    workspace: PathBuf,
}

impl Kit {
    pub(crate) fn new(world: &World) -> Self {
        Self { workspace: world.workspace() }
    }
}

/// What a call does when it runs.
struct Work {
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

impl Toolbox for Kit {
    fn specs(&self) -> Arc<[ToolSpec]> {
        ["read", "write", "run"]
            .map(|name| ToolSpec {
                name: name.into(),
                description: "A tool.".into(),
                schema: json!({ "type": "object" }),
            })
            .into()
    }

    fn access(&self, call: &ToolCall) -> Access {
        match &*call.name {
            "read" => Access::read(&argument(call, "path")),
            "write" => Access::write(&argument(call, "path")),
            _ => Access::Exclusive,
        }
    }

    fn vet(&self, call: &ToolCall, _: &Scope) -> Vetted {
        let intent = match &*call.name {
            "read" => Intent::Pure,
            "write" => {
                let path = argument(call, "path");
                let before = fs::read(self.workspace.join(&path)).ok();
                Intent::Edit {
                    files: [Image {
                        before: before.map(|text| sha256(&text)),
                        after: Some(sha256(argument(call, "text").as_bytes())),
                        path: path.into(),
                    }]
                    .into(),
                }
            }
            _ => Intent::Opaque,
        };
        Vetted::Cleared {
            job: Box::new(Work { call: call.clone(), workspace: self.workspace.clone() }),
            limit: Span::secs(60),
            intent,
            grounds: "test".into(),
        }
    }
}

impl Job for Work {
    fn run(self: Box<Self>, _: &Scope) -> ToolResult {
        match self.work() {
            Ok(text) => {
                let changes = self.changes();
                ToolResult { changes, ..ToolResult::new(self.call.id, ToolStatus::Ok, text) }
            }
            Err(error) => ToolResult::new(self.call.id, ToolStatus::Failed, error.to_string()),
        }
    }
}

impl Work {
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

    fn work(&self) -> io::Result<String> {
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
