//! A stage for whole runs: a model that says what it is told to say, tools that do what they are told to do, and the
//! real driver on a clock that only goes on when somebody waits.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use architect::machine::{Conversation, Event, Fold, Intent, StopReason};
use architect::model::{
    Access, Fault, FileAction, FileChange, Finish, Item, Origin, Part, Price, Reply, Rules, Signal,
    Span, Time, Tokens, ToolCall, ToolResult, ToolStatus, Usage, UserMessage,
};
use architect::port::{
    Ask, Delta, HookOutcome, HookPoint, HookRun, Job, Mailbox, Model, ModelCall, Notice, Scope,
    ToolSpec, Toolbox, Vetted,
};
use architect::runner::{Arrival, Brief, Driver, Inline, Ports};
use architect::view::{About, Earlier, Lost, Output, Patience, RunResult, Show, Source};

/// One answer of the model.
pub(crate) struct Turn {
    wait: Span,
    deltas: Vec<String>,
    end: Result<Reply, Fault>,
}

/// The final answer, in two pieces.
pub(crate) fn says(text: &str) -> Turn {
    let middle = text.char_indices().map(|(at, _)| at).nth(text.chars().count() / 2);
    let (first, second) = text.split_at(middle.unwrap_or(0));
    let end = Ok(reply(vec![Part::Text(text.into())], Finish::Stop));
    Turn { wait: Span::millis(400), deltas: vec![first.to_owned(), second.to_owned()], end }
}

/// Tool calls, with a remark before them.
pub(crate) fn calls(remark: &str, calls: &[(&str, &str, &str)]) -> Turn {
    let calls = calls
        .iter()
        .map(|(id, name, arguments)| Part::Call(ToolCall::new((*id).into(), name, arguments)));
    let mut parts: Vec<Part> = calls.collect();
    let mut deltas = Vec::new();
    if !remark.is_empty() {
        parts.insert(0, Part::Text(remark.into()));
        deltas.push(remark.to_owned());
    }
    Turn { wait: Span::millis(800), deltas, end: Ok(reply(parts, Finish::ToolCalls)) }
}

/// Half a reply, and then a fault.
pub(crate) fn breaks(text: &str, fault: Fault) -> Turn {
    Turn { wait: Span::millis(100), deltas: vec![text.to_owned()], end: Err(fault) }
}

/// A reply that ends in this way.
pub(crate) fn ends(text: &str, finish: Finish) -> Turn {
    Turn { wait: Span::ZERO, deltas: vec![], end: Ok(reply(vec![Part::Text(text.into())], finish)) }
}

fn reply(parts: Vec<Part>, finish: Finish) -> Reply {
    let usage = Usage { input: Tokens(100), output: Tokens(20), ..Usage::default() };
    Reply { parts: parts.into(), finish, usage, model: None }
}

/// A run that is about to begin.
pub(crate) struct Stage {
    pub(crate) turns: Vec<Turn>,
    pub(crate) rules: Rules,
    pub(crate) mail: Vec<&'static str>,
    /// When the user interrupts.
    pub(crate) interrupted: Option<Time>,
    pub(crate) about: About,
}

/// A model of 2.5 dollars for a million tokens of input, 10 for output.
const PRICE: Price = Price {
    input: 2_500_000,
    output: 10_000_000,
    cached_input: 1_250_000,
    cache_write: 0,
    long: None,
};

impl Stage {
    pub(crate) fn new(turns: Vec<Turn>) -> Self {
        let rules = Rules { price: Some(PRICE), ..Rules::default() };
        Self { turns, rules, mail: Vec::new(), interrupted: None, about: about() }
    }

    /// Plays the run to its end, and tells the result.
    pub(crate) fn play(self, outputs: Vec<Box<dyn Output>>) -> (RunResult, Result<(), Lost>) {
        let show = Show::new(outputs);
        self.play_in(&show);
        let result = show.results(StopReason::InternalError, "nobody saw the end").remove(0);
        let finished = show.finish(&result, Patience::UntilRead);
        (result, finished)
    }

    /// Plays the run to its end, before this show.
    pub(crate) fn play_in(self, show: &Show) {
        let Self { turns, rules, mail, interrupted, about } = self;
        let (fold, first) = Fold::start(
            rules,
            Conversation::new(0),
            Item::user(Origin::Task, Arc::clone(&about.task)),
        );
        let ports = Ports {
            tools: Arc::new(Props),
            observer: Box::new(show.watch(about)),
            mailbox: Box::new(Post(mail)),
            ..Ports::new(Box::new(Script(turns.into())))
        };
        let brief = Brief { system: "".into(), tools: Props.specs(), schema: None };
        let mut hands = Inline::new();
        if let Some(at) = interrupted {
            let signal = Signal::Interrupt;
            hands.post_at(at, Arrival::Event(Event::Interrupt { signal }));
        }
        Driver::new(hands, ports, brief, fold).run(first);
    }
}

pub(crate) fn about() -> About {
    About {
        session_id: "s-1".into(),
        agent: "build".into(),
        model: "scripted/demo".into(),
        workspace: "/w".into(),
        task: "Mend the greeting".into(),
        sandbox: None,
        began: "2026-01-02T03:04:05Z".parse().unwrap(),
        source: Source::Agent,
        structured: false,
        exit_on_partial: None,
        earlier: Earlier::default(),
    }
}

struct Script(VecDeque<Turn>);

impl Model for Script {
    fn prepare(&mut self, _: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        Ok(Box::new(self.0.pop_front().expect("the script has an answer to every call")))
    }
}

impl ModelCall for Turn {
    fn run(self: Box<Self>, scope: &Scope, sink: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        scope.sleep(self.wait);
        for delta in self.deltas {
            sink(Delta::Text(delta));
        }
        self.end
    }
}

/// Tools by name: `edit_file` edits and has a hook, `rm` is denied, `fail` fails, everything else does well. The
/// arguments `ms` and `say` tell how long a call takes and what it answers.
struct Props;

impl Toolbox for Props {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [].into()
    }

    fn access(&self, _: &ToolCall) -> Access {
        Access::read("")
    }

    fn vet(&self, call: &ToolCall, _: &Scope) -> Vetted {
        match &*call.name {
            "rm" => {
                let text = "denied by the rule run_command(rm *)";
                Vetted::Refused(ToolResult::new(call.id.clone(), ToolStatus::Denied, text))
            }
            _ => Vetted::Cleared {
                job: Box::new(Prop(call.clone())),
                limit: Span::secs(60),
                intent: Intent::Pure,
                grounds: "test".into(),
            },
        }
    }
}

struct Prop(ToolCall);

impl Job for Prop {
    fn run(self: Box<Self>, scope: &Scope) -> ToolResult {
        let call = self.0;
        let arguments: serde_json::Value =
            serde_json::from_str(call.arguments.text()).unwrap_or_default();
        scope.sleep(Span::millis(arguments["ms"].as_u64().unwrap_or(10)));
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
            scope.tell(Notice::Hook(HookRun {
                name: "ruff".into(),
                point: HookPoint::PostEdit,
                outcome: HookOutcome::Passed,
                took: Span::millis(7),
                call: Some(call.id.clone()),
                said: None,
            }));
        }
        result
    }
}

/// Messages of the user; they arrive with the first call.
struct Post(Vec<&'static str>);

impl Mailbox for Post {
    fn messages(&mut self) -> Vec<UserMessage> {
        let messages = self.0.drain(..);
        let message = |text: &str| UserMessage { origin: Origin::Steering, text: text.into() };
        messages.map(message).collect()
    }

    fn follow_up(&mut self) -> Option<Arc<str>> {
        None
    }
}

/// A writer whose bytes can be looked at.
#[derive(Clone, Default)]
pub(crate) struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
