//! A stored session as a scenario: its replies, its tool results and its files.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::expectations::{Expectations, ExpectedFile, ExpectedTool, TextPattern};
use super::original_files::OriginalFiles;
use super::parse::expectations_toml;
use super::recording::status_name;
use crate::journal::{
    JournalError, SessionHistory, SessionId, SessionStore, StoredContent, StoredRecord,
};
use crate::machine::{Authorization, CallIntent, CheckResult, Event, State, StateKind};
use crate::model::{
    ConversationItem, Fault, MessageOrigin, Price, Reply, ReplyFinish, ReplyPart, RetryAdvice,
    Signal, ToolResult,
};

/// The head of a scenario, in the order in which it is written.
#[derive(Serialize)]
struct SessionScenarioToml {
    about: String,
    prompt: String,
    agent: String,
    sets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<PriceToml>,
    workspace: BTreeMap<String, String>,
    turn: Vec<TurnToml>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    at: Vec<ActionToml>,
}

#[derive(Serialize)]
struct PriceToml {
    input: f64,
    output: f64,
    cached_input: f64,
    cache_write: f64,
}

#[derive(Default, Serialize)]
struct TurnToml {
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageToml>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FaultToml>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<CallToml>,
}

#[derive(Serialize)]
struct UsageToml {
    input: u64,
    output: u64,
    cached_input: u64,
    cache_write: u64,
    reasoning: u64,
}

#[derive(Serialize)]
struct FaultToml {
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
struct CallToml {
    id: String,
    name: String,
    /// The arguments to the byte, as the model wrote them.
    raw: String,
}

#[derive(Serialize)]
struct ActionToml {
    event: &'static str,
    nth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    steer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    follow_up: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'static str>,
}

/// What the records of a session yield.
#[derive(Default)]
struct SessionExtract {
    turns: Vec<TurnToml>,
    actions: Vec<ActionToml>,
    /// The calls in their order, with their answers.
    calls: Vec<(String, String, Option<ToolResult>)>,
    replies: u32,
    /// The calls of the model, whatever became of them.
    attempts: usize,
    /// The state before the next record.
    last_state: Option<StateKind>,
    files: OriginalFiles,
}

/// What the model says in the scenario of a session in which it said nothing.
const NO_REPLY: &str = "(The session has no reply.)";

/// Settings that say where the session ran, which is somewhere else now.
const LOCAL_SETTINGS: [&str; 5] = ["llm.", "workspace.root", "sessions.", "logging.", "mcp."];

/// Returns a scenario that plays a session again, as text.
///
/// The original files follow from the digests in the journal and the files as they are now; a comment names
/// those for which that is not possible.
///
/// # Errors
///
/// Fails when there is no such session, or it can't be read.
pub fn scenario_from_session(
    store: &SessionStore,
    session: SessionId,
) -> Result<String, JournalError> {
    let mut extract = SessionExtract::default();
    let (past, _) = store.replay(session, |past, stored, _| {
        extract.add_record(past, stored);
        // A sub-agent called the same model, before the next turn of this session.
        if let Some(session) = subagent_session(stored) {
            let child = store.replay(session, |_, stored, _| {
                if let StoredContent::Event(event) = &stored.content {
                    extract.add_event(event);
                }
            });
            match child.map(|(_, end)| end.damage()) {
                Ok(None) => {}
                Ok(Some(why)) => log::warn!("the journal of session {session} is damaged: {why}"),
                Err(error) => log::warn!("{error}"),
            }
        }
    })?;
    if extract.turns.is_empty() {
        // A script has a turn, also for a run that was interrupted before its first reply.
        extract.turns.push(TurnToml { text: NO_REPLY.to_owned(), ..TurnToml::default() });
    }
    let root = past.header.setup.workspace.root.clone();
    let (workspace, unknown) = extract.files.restore(&root);
    let files = extract.files.unchanged_since(&root).into_iter().map(|(path, text)| {
        let file = text.map_or(ExpectedFile::Exists(false), |text| {
            ExpectedFile::Content(TextPattern::Exact(text))
        });
        (path, file)
    });
    let expect = expectations_from(&past, &extract.calls, files.collect());
    let rules = &past.header.rules;
    let is_imported = past.header.imported_up_to.is_some();
    let head = SessionScenarioToml {
        about: format!("Session {session}."),
        prompt: match &past.header.task {
            ConversationItem::User(message) => message.text.to_string(),
            ConversationItem::Assistant(_) | ConversationItem::Exchange(_) => String::new(),
        },
        agent: past.header.setup.agent.to_string(),
        // Those of an imported session could run commands of their own.
        sets: if is_imported { Vec::new() } else { portable_settings(&past.header.setup.options) },
        window: Some(rules.context.window.0),
        schema: past.header.setup.schema.as_deref().cloned(),
        price: rules.price.as_ref().map(PriceToml::of),
        workspace,
        turn: extract.turns,
        at: extract.actions,
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
    Ok(format!("{unknown}{head}\n{}", expectations_toml(&expect)))
}

/// Returns the session of a run within the run that begins here.
fn subagent_session(stored: &StoredRecord) -> Option<SessionId> {
    let StoredContent::Event(Event::Authorized { authorization, .. }) = &stored.content else {
        return None;
    };
    let Authorization::Approved { intent: CallIntent::Delegated { session }, .. } = authorization
    else {
        return None;
    };
    session.as_deref()?.parse().ok()
}

fn portable_settings(options: &Value) -> Vec<String> {
    let sets = options["sets"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let here = sets.filter(|set| !LOCAL_SETTINGS.iter().any(|prefix| set.starts_with(prefix)));
    here.map(str::to_owned).collect()
}

fn expectations_from(
    past: &SessionHistory,
    calls: &[(String, String, Option<ToolResult>)],
    files: BTreeMap<String, ExpectedFile>,
) -> Expectations {
    let tool = |(_, name, result): &(String, String, Option<ToolResult>)| ExpectedTool {
        name: Some(name.clone()),
        status: result.as_ref().map(|result| status_name(result.status)),
        text: result.as_ref().map(|result| TextPattern::Exact(result.text.to_string())),
    };
    let tools = Some(calls.iter().map(tool).collect());
    let expect = Expectations { files, tools, ..Expectations::default() };
    let State::Done(done) = &past.machine.state else { return expect };
    let outcome = &done.outcome;
    Expectations {
        exit_code: Some(outcome.reason.exit_code()),
        stop_reason: Some(outcome.reason.name().to_owned()),
        steps: Some(done.run.steps),
        output: outcome.output.as_deref().map(|text| TextPattern::Exact(text.to_owned())),
        ..expect
    }
}

impl SessionExtract {
    fn add_record(&mut self, past: &SessionHistory, stored: &StoredRecord) {
        let stood = self.last_state.replace(past.machine.state.kind());
        let StoredContent::Event(event) = &stored.content else { return };
        self.add_event(event);
        match event {
            Event::Replied { reply, .. } => {
                self.replies += 1;
                self.attempts += 1;
                let calls = reply.calls();
                self.calls.extend(calls.map(|c| (c.id.to_string(), c.name.to_string(), None)));
            }
            Event::Prepared { messages, .. } => {
                for message in messages.iter().filter(|one| one.origin == MessageOrigin::Steering) {
                    let steer = Some(message.text.to_string());
                    let here = self.current_position();
                    self.actions.push(ActionToml { steer, ..here });
                }
            }
            Event::Checked { result: CheckResult::FollowUp { message }, .. } => {
                let follow_up = Some(message.to_string());
                let here = self.current_position();
                self.actions.push(ActionToml { follow_up, ..here });
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
                    ) => ActionToml::at("api_call_start", self.attempts + 1),
                    Some(
                        StateKind::Preparing
                        | StateKind::CompactingWaiting
                        | StateKind::CallingWaiting
                        | StateKind::CallingChecking
                        | StateKind::Executing
                        | StateKind::ClosingPreparing
                        | StateKind::Done,
                    )
                    | None => self.current_position(),
                };
                self.actions.push(ActionToml { signal: Some(signal), ..here });
            }
            Event::Authorized { authorization: Authorization::Rejected { result }, .. }
            | Event::ToolCompleted { result, .. } => self.add_result(result),
            Event::CallFailed { .. } => self.attempts += 1,
            Event::Authorized {
                authorization: Authorization::Approved { .. } | Authorization::Abort,
                ..
            }
            | Event::Checked { .. }
            | Event::UsageReported { .. }
            | Event::Tick { .. }
            | Event::StoreFailed { .. }
            | Event::InternalError { .. } => {}
        }
    }

    /// Adds the replies and changes of a sub-agent's run.
    fn add_event(&mut self, event: &Event) {
        match event {
            Event::Replied { reply, .. } => {
                self.turns.push(TurnToml::of(reply));
                self.files.record_calls(reply);
            }
            Event::CallFailed { fault, .. } => {
                self.turns
                    .push(TurnToml { error: Some(FaultToml::of(fault)), ..TurnToml::default() });
            }
            Event::Authorized { authorization: Authorization::Approved { intent, .. }, .. } => {
                self.files.record_intent(intent);
            }
            Event::Authorized { .. }
            | Event::Prepared { .. }
            | Event::ToolCompleted { .. }
            | Event::UsageReported { .. }
            | Event::Checked { .. }
            | Event::Interrupt { .. }
            | Event::Tick { .. }
            | Event::StoreFailed { .. }
            | Event::InternalError { .. } => {}
        }
    }

    /// Returns the moment after the newest reply.
    fn current_position(&self) -> ActionToml {
        match self.replies {
            0 => ActionToml::at("agent_start", 1),
            replies => ActionToml::at("api_call_end outcome=replied", replies as usize),
        }
    }

    fn add_result(&mut self, result: &ToolResult) {
        let open = |(id, _, answer): &&mut (String, String, Option<ToolResult>)| {
            answer.is_none() && *id == result.call.as_str()
        };
        if let Some((_, _, answer)) = self.calls.iter_mut().find(open) {
            *answer = Some(result.clone());
        }
    }
}

impl ActionToml {
    fn at(event: &'static str, nth: usize) -> Self {
        let nth = u32::try_from(nth).unwrap_or(u32::MAX);
        Self { event, nth, steer: None, follow_up: None, signal: None }
    }
}

impl TurnToml {
    fn of(reply: &Reply) -> Self {
        let finish = match &reply.finish {
            ReplyFinish::Stop | ReplyFinish::ToolCalls => None,
            ReplyFinish::Length => Some("length"),
            ReplyFinish::Pause => Some("pause"),
            ReplyFinish::Refused => Some("refused"),
            ReplyFinish::ContextFull => Some("context_full"),
            ReplyFinish::Other(other) => Some(&**other),
        };
        let texts = reply.parts.iter().filter_map(|part| match part {
            ReplyPart::Text(text) => Some(&**text),
            ReplyPart::Call(_) | ReplyPart::Opaque(_) => None,
        });
        let text: String = texts.collect();
        let calls: Vec<CallToml> = reply
            .calls()
            .map(|call| CallToml {
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
            usage: Some(UsageToml {
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

impl FaultToml {
    fn of(fault: &Fault) -> Self {
        Self {
            kind: status_name(fault.kind),
            message: fault.message.to_string(),
            wait_ms: fault.retry_after.map(|wait| wait.0 / 1_000),
            retry: match fault.advice {
                RetryAdvice::Unspecified => None,
                RetryAdvice::Retry => Some("yes"),
                RetryAdvice::GiveUp => Some("no"),
            },
            billed: fault.billed,
        }
    }
}

impl PriceToml {
    fn of(price: &Price) -> Self {
        let dollars = |micros| crate::model::MicroUsd(micros).as_dollars();
        Self {
            input: dollars(price.input),
            output: dollars(price.output),
            cached_input: dollars(price.cached_input),
            cache_write: dollars(price.cache_write),
        }
    }
}
