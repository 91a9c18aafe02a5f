//! A stored session as a scenario: what its model said, what its tools answered, what became of its files.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::expect::{Expect, ExpectedFile, ExpectedTool, Text};
use super::file::section;
use super::past_files::PastFiles;
use super::witness::status;
use crate::journal::{Content, JournalError, Past, SessionId, Store, Stored};
use crate::machine::{Check, Event, Intent, State, StateKind, Verdict};
use crate::model::{
    Fault, Finish, Item, Origin, Part, Price, Reply, RetryAdvice, Signal, ToolResult,
};

/// The head of a scenario, in the order in which it is written.
#[derive(Serialize)]
struct Head {
    about: String,
    prompt: String,
    agent: String,
    sets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<PriceLine>,
    workspace: BTreeMap<String, String>,
    turn: Vec<Turn>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    at: Vec<Happening>,
}

#[derive(Serialize)]
struct PriceLine {
    input: f64,
    output: f64,
    cached_input: f64,
    cache_write: f64,
}

#[derive(Default, Serialize)]
struct Turn {
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Call>,
}

#[derive(Serialize)]
struct Usage {
    input: u64,
    output: u64,
    cached_input: u64,
    cache_write: u64,
    reasoning: u64,
}

#[derive(Serialize)]
struct Error {
    kind: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    billed: bool,
}

#[derive(Serialize)]
struct Call {
    id: String,
    name: String,
    /// The arguments to the byte, as the model wrote them.
    raw: String,
}

#[derive(Serialize)]
struct Happening {
    event: &'static str,
    nth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    steer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    follow_up: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'static str>,
}

/// What a session tells, record by record.
#[derive(Default)]
struct Told {
    turns: Vec<Turn>,
    at: Vec<Happening>,
    /// The calls in their order, with their answers.
    calls: Vec<(String, String, Option<ToolResult>)>,
    replies: u32,
    /// The calls of the model, whatever became of them.
    attempts: usize,
    /// Where the run stood before the next record.
    stood: Option<StateKind>,
    files: PastFiles,
}

/// Settings that say where the session ran, which is somewhere else now.
const ELSEWHERE: [&str; 5] = ["llm.", "workspace.root", "sessions.", "logging.", "mcp."];

/// Returns a scenario that plays a session again, as text.
///
/// What its files were before is found out from the digests in the journal and the files as they stand; a comment names
/// those for which that is not possible.
///
/// # Errors
///
/// Fails when there is no such session, or it can't be read.
pub fn from_session(store: &Store, session: SessionId) -> Result<String, JournalError> {
    let mut told = Told::default();
    let (past, _) = store.replay(session, |past, stored, _| {
        told.take(past, stored);
        // Who was dispatched asked the same model, before the next turn of this session.
        if let Some(session) = delegated(stored) {
            let child = store.replay(session, |_, stored, _| {
                if let Content::Event(event) = &stored.content {
                    told.take_in(event);
                }
            });
            match child.map(|(_, end)| end.damage()) {
                Ok(None) => {}
                Ok(Some(why)) => log::warn!("the journal of session {session} is damaged: {why}"),
                Err(error) => log::warn!("{error}"),
            }
        }
    })?;
    let root = past.header.setting.workspace.root.clone();
    let (workspace, unknown) = told.files.before(&root);
    let files = told.files.after(&root).into_iter().map(|(path, text)| {
        let file = text
            .map_or(ExpectedFile::Exists(false), |text| ExpectedFile::Content(Text::Exact(text)));
        (path, file)
    });
    let expect = expect(&past, &told.calls, files.collect());
    let rules = &past.header.rules;
    let is_imported = past.header.imported.is_some();
    let head = Head {
        about: format!("Session {session}."),
        prompt: match &past.header.task {
            Item::User(message) => message.text.to_string(),
            Item::Assistant(_) | Item::Exchange(_) => String::new(),
        },
        agent: past.header.setting.agent.to_string(),
        // Those of an imported session could run commands of their own.
        sets: if is_imported { Vec::new() } else { sets(&past.header.setting.options) },
        window: Some(rules.context.window.0),
        schema: past.header.setting.schema.as_deref().cloned(),
        price: rules.price.as_ref().map(PriceLine::of),
        workspace,
        turn: told.turns,
        at: told.at,
    };
    let head = toml::to_string_pretty(&head).unwrap_or_default();
    let unknown: String = unknown
        .iter()
        .map(|path| format!("# What {path} was before is not known; it is as it stands now.\n"))
        .collect();
    let unknown = match is_imported {
        true => format!(
            "# The session was imported: the options that it was begun with are left out.\n{unknown}"
        ),
        false => unknown,
    };
    Ok(format!("{unknown}{head}\n{}", section(&expect)))
}

/// Returns the session of a run within the run that begins here.
fn delegated(stored: &Stored) -> Option<SessionId> {
    let Content::Event(Event::Vetted { verdict, .. }) = &stored.content else { return None };
    let Verdict::Cleared { intent: Intent::Delegated { session }, .. } = verdict else {
        return None;
    };
    session.as_deref()?.parse().ok()
}

fn sets(options: &Value) -> Vec<String> {
    let sets = options["sets"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let here = sets.filter(|set| !ELSEWHERE.iter().any(|prefix| set.starts_with(prefix)));
    here.map(str::to_owned).collect()
}

fn expect(
    past: &Past,
    calls: &[(String, String, Option<ToolResult>)],
    files: BTreeMap<String, ExpectedFile>,
) -> Expect {
    let tool = |(_, name, result): &(String, String, Option<ToolResult>)| ExpectedTool {
        name: Some(name.clone()),
        status: result.as_ref().map(|result| status(result.status)),
        text: result.as_ref().map(|result| Text::Exact(result.text.to_string())),
    };
    let tools = Some(calls.iter().map(tool).collect());
    let expect = Expect { files, tools, ..Expect::default() };
    let State::Done(done) = &past.fold.state else { return expect };
    let outcome = &done.outcome;
    Expect {
        exit_code: Some(outcome.reason.exit_code()),
        stop_reason: Some(outcome.reason.name().to_owned()),
        steps: Some(done.run.steps),
        output: outcome.output.as_deref().map(|text| Text::Exact(text.to_owned())),
        ..expect
    }
}

impl Told {
    fn take(&mut self, past: &Past, stored: &Stored) {
        let stood = self.stood.replace(past.fold.state.kind());
        let Content::Event(event) = &stored.content else { return };
        self.take_in(event);
        match event {
            Event::Replied { reply, .. } => {
                self.replies += 1;
                self.attempts += 1;
                let calls = reply.calls();
                self.calls.extend(calls.map(|c| (c.id.to_string(), c.name.to_string(), None)));
            }
            Event::Prepared { messages, .. } => {
                for message in messages.iter().filter(|one| one.origin == Origin::Steering) {
                    let steer = Some(message.text.to_string());
                    let here = self.here();
                    self.at.push(Happening { steer, ..here });
                }
            }
            Event::Checked { check: Check::FollowUp { message }, .. } => {
                let follow_up = Some(message.to_string());
                let here = self.here();
                self.at.push(Happening { follow_up, ..here });
            }
            Event::Interrupt { signal } => {
                let signal = match signal {
                    Signal::Interrupt | Signal::Pipe => "SIGINT",
                    Signal::Terminate => "SIGTERM",
                    Signal::Hangup => "SIGHUP",
                };
                let here = match stood {
                    Some(
                        StateKind::CallingSending
                        | StateKind::CompactingSending
                        | StateKind::ClosingSending,
                    ) => Happening::at("api_call_start", self.attempts + 1),
                    Some(
                        StateKind::Preparing
                        | StateKind::CompactingWaiting
                        | StateKind::CallingWaiting
                        | StateKind::CallingChecking
                        | StateKind::Executing
                        | StateKind::ClosingPreparing
                        | StateKind::Done,
                    )
                    | None => self.here(),
                };
                self.at.push(Happening { signal: Some(signal), ..here });
            }
            Event::Vetted { verdict: Verdict::Refused { result }, .. }
            | Event::Settled { result, .. } => self.answered(result),
            Event::Failed { .. } => self.attempts += 1,
            Event::Vetted { verdict: Verdict::Cleared { .. } | Verdict::Abort, .. }
            | Event::Checked { .. }
            | Event::Charged { .. }
            | Event::Tick { .. }
            | Event::StoreFailed { .. }
            | Event::Defect { .. } => {}
        }
    }

    /// Takes in what a run within the run tells, too: its turns, and what it changed.
    fn take_in(&mut self, event: &Event) {
        match event {
            Event::Replied { reply, .. } => {
                self.turns.push(Turn::of(reply));
                self.files.called(reply);
            }
            Event::Failed { fault, .. } => {
                self.turns.push(Turn { error: Some(Error::of(fault)), ..Turn::default() });
            }
            Event::Vetted { verdict: Verdict::Cleared { intent, .. }, .. } => {
                self.files.cleared(intent);
            }
            Event::Vetted { .. }
            | Event::Prepared { .. }
            | Event::Settled { .. }
            | Event::Charged { .. }
            | Event::Checked { .. }
            | Event::Interrupt { .. }
            | Event::Tick { .. }
            | Event::StoreFailed { .. }
            | Event::Defect { .. } => {}
        }
    }

    /// Returns the moment after the newest reply.
    fn here(&self) -> Happening {
        match self.replies {
            0 => Happening::at("agent_start", 1),
            replies => Happening::at("api_call_end outcome=replied", replies as usize),
        }
    }

    fn answered(&mut self, result: &ToolResult) {
        let open = |(id, _, answer): &&mut (String, String, Option<ToolResult>)| {
            answer.is_none() && *id == result.call.as_str()
        };
        if let Some((_, _, answer)) = self.calls.iter_mut().find(open) {
            *answer = Some(result.clone());
        }
    }
}

impl Happening {
    fn at(event: &'static str, nth: usize) -> Self {
        let nth = u32::try_from(nth).unwrap_or(u32::MAX);
        Self { event, nth, steer: None, follow_up: None, signal: None }
    }
}

impl Turn {
    fn of(reply: &Reply) -> Self {
        let finish = match &reply.finish {
            Finish::Stop | Finish::ToolCalls => None,
            Finish::Length => Some("length"),
            Finish::Pause => Some("pause"),
            Finish::Refused => Some("refused"),
            Finish::ContextFull => Some("context_full"),
            Finish::Other(other) => Some(&**other),
        };
        let texts = reply.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Call(_) | Part::Opaque(_) => None,
        });
        let text: String = texts.collect();
        let calls: Vec<Call> = reply
            .calls()
            .map(|call| Call {
                id: call.id.to_string(),
                name: call.name.to_string(),
                raw: call.arguments.text().to_owned(),
            })
            .collect();
        // An empty reply has to say at least how it ended.
        let is_nothing = text.is_empty() && calls.is_empty();
        let usage = &reply.usage;
        Self {
            finish: finish.or(is_nothing.then_some("stop")).map(str::to_owned),
            text,
            calls,
            usage: Some(Usage {
                input: usage.input.0,
                output: usage.output.0,
                cached_input: usage.cached_input.0,
                cache_write: usage.cache_write.0,
                reasoning: usage.reasoning.0,
            }),
            error: None,
        }
    }
}

impl Error {
    fn of(fault: &Fault) -> Self {
        Self {
            kind: status(fault.kind),
            message: fault.message.to_string(),
            wait_ms: fault.wait.map(|wait| wait.0 / 1_000),
            retry: match fault.retry {
                RetryAdvice::Silent => None,
                RetryAdvice::Yes => Some("yes"),
                RetryAdvice::No => Some("no"),
            },
            billed: fault.billed,
        }
    }
}

impl PriceLine {
    fn of(price: &Price) -> Self {
        let dollars = |micros| crate::model::Micros(micros).dollars();
        Self {
            input: dollars(price.input),
            output: dollars(price.output),
            cached_input: dollars(price.cached_input),
            cache_write: dollars(price.cache_write),
        }
    }
}
