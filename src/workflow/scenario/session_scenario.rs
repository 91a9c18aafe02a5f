//! Conversion of a stored session to a scenario: its replies, tool results and files.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::{Value, json};

use super::expectations::{Expectations, ExpectedFile, ExpectedTool, TextPattern};
use super::original_files::OriginalFiles;
use super::parse::{expectations_toml, without_nulls};
use crate::app::{APPLIED_NOTE, DISPATCH_TOOL};
use crate::journal::{
    JournalError, SessionHistory, SessionId, SessionStore, StoredContent, StoredRecord,
    WorkspaceIdentity,
};
use crate::machine::{
    Authorization, CallIntent, CheckResult, Effect, Event, StateKind, StopReason,
};
use crate::types::{
    CallId, ConversationItem, Fault, MessageOrigin, MicroUsd, Price, Reply, ReplyFinish, ReplyPart,
    RetryAdvice, Signal, ToolCall, ToolResult,
};

/// The parts of a scenario that are extracted from the records of a session.
#[derive(Default)]
struct SessionExtract {
    turns: Vec<Value>,
    actions: Vec<Value>,
    /// The tool calls in call order, with their results.
    calls: Vec<(ToolCall, Option<ToolResult>)>,
    /// The calls whose authorization began. Other calls belong to a reply at which the run ended.
    authorized: HashSet<CallId>,
    replies: u32,
    /// The number of model calls, including failed ones.
    attempts: u32,
    /// The state before the next record.
    last_state: Option<StateKind>,
    files: OriginalFiles,
}

/// The scripted reply for a session without replies.
const NO_REPLY: &str = "(The session has no reply.)";

/// The prefixes of settings that depend on the machine, or that a scenario can't set.
const LOCAL_SETTINGS: [&str; 9] = [
    "llm.",
    "workspace.root",
    "sessions.",
    "logging.",
    "mcp.",
    "sandbox.mode=off",
    "sandbox.readable",
    "sandbox.writable",
    "commands.env_include",
];

/// Returns the text of a scenario that repeats a session.
///
/// The original files follow from the digests in the journal and the present files. Where that is not possible, a
/// comment in the scenario names the file.
///
/// # Errors
///
/// Fails if the session does not exist, or can't be read.
pub fn scenario_from_session(
    store: &SessionStore,
    session: SessionId,
) -> Result<String, JournalError> {
    let mut extract = SessionExtract::default();
    let (past, _) = store.replay(session, |past, stored, _| {
        extract.add_record(past, stored);
        // A sub-agent called the same model, before the next turn of this session.
        if let Some(session) = subagent_session(stored) {
            let child = store.replay(session, |_, stored, _| extract.add_turn(stored));
            match child.map(|(_, end)| end.damage()) {
                Ok(None) => {}
                Ok(Some(why)) => log::warn!("the journal of session {session} is damaged: {why}"),
                Err(error) => log::warn!("{error}"),
            }
        }
    })?;
    if extract.turns.is_empty() {
        // A script needs a turn, even if the run was interrupted before its first reply.
        extract.turns.push(json!({ "text": NO_REPLY }));
    }
    let root = files_root(&past.header.setup.workspace);
    let (workspace, unknown) = extract.files.restore(root);
    let files = extract.files.unchanged_since(root).into_iter().map(|(path, text)| {
        let file = text.map_or(ExpectedFile::Exists(false), |text| {
            ExpectedFile::Content(TextPattern::Exact(text))
        });
        (path, file)
    });
    extract.calls.retain(|(call, _)| extract.authorized.contains(&call.id));
    let expect = expectations_from(&past, &extract.calls, files.collect());
    let rules = &past.header.rules;
    let is_imported = past.header.imported_up_to.is_some();
    let prompt = match &past.header.task {
        ConversationItem::User(message) => &*message.text,
        _ => "",
    };
    let mut head = json!({
        "about": format!("Session {session}."),
        "prompt": prompt,
        "agent": past.header.setup.agent,
        // The settings of an imported session could run commands.
        "sets": if is_imported { Vec::new() } else { portable_settings(&past.header.setup.options) },
        "window": rules.context.window,
        "schema": past.header.setup.schema,
        "price": rules.price.map(price_table),
        "workspace": workspace,
        "turn": extract.turns,
    });
    if !extract.actions.is_empty() {
        head["at"] = extract.actions.into();
    }
    let head = toml::to_string_pretty(&without_nulls(head)).unwrap_or_default();
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

/// Returns the folder with the files of a session. If it was a worktree that is removed, as after a merge, that is the
/// workspace from which the worktree was made.
fn files_root(workspace: &WorkspaceIdentity) -> &Path {
    let origin = workspace.origin.as_ref().filter(|_| !workspace.root.is_dir());
    origin.unwrap_or(&workspace.root)
}

/// Returns the session of a sub-agent, if the record dispatches one.
fn subagent_session(stored: &StoredRecord) -> Option<SessionId> {
    let StoredContent::Event(Event::Authorized { authorization, .. }) = &stored.content else {
        return None;
    };
    let Authorization::Approved { intent: CallIntent::Delegated { session, .. }, .. } =
        authorization
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
    calls: &[(ToolCall, Option<ToolResult>)],
    files: BTreeMap<String, ExpectedFile>,
) -> Expectations {
    let tool = |(call, result): &(ToolCall, Option<ToolResult>)| ExpectedTool {
        name: Some(call.name.to_string()),
        status: result.as_ref().map(|result| result.status.to_string()),
        text: result.as_ref().map(|result| TextPattern::Exact(scenario_text(call, result))),
    };
    let tools = Some(calls.iter().map(tool).collect());
    let expect = Expectations { files, tools, ..Expectations::default() };
    let Some(outcome) = past.machine.state.outcome() else { return expect };
    // A scenario has no output to close, and sends a signal instead.
    let reason = match outcome.reason {
        StopReason::UserInterrupt(Signal::Pipe) => StopReason::UserInterrupt(Signal::Interrupt),
        reason => reason,
    };
    Expectations {
        exit_code: Some(reason.exit_code()),
        stop_reason: Some(reason.name().to_owned()),
        steps: Some(past.machine.state.run().steps),
        output: outcome.output.as_deref().map(|text| TextPattern::Exact(text.to_owned())),
        ..expect
    }
}

/// Returns the text of a result for a scenario. There, sub-agents work in the workspace itself, so the note on applied
/// changes is removed.
fn scenario_text(call: &ToolCall, result: &ToolResult) -> String {
    let answer = result.text.split_once(APPLIED_NOTE).filter(|_| *call.name == *DISPATCH_TOOL);
    answer.map_or(&*result.text, |(answer, _)| answer).to_owned()
}

impl SessionExtract {
    fn add_record(&mut self, past: &SessionHistory, stored: &StoredRecord) {
        let stood = self.last_state.replace(past.machine.state.kind());
        self.add_turn(stored);
        let StoredContent::Event(event) = &stored.content else { return };
        self.authorized.extend(past.output.effects.iter().filter_map(|effect| match effect {
            Effect::Authorize { call, .. } => Some(call.id.clone()),
            _ => None,
        }));
        match event {
            Event::Replied { reply, .. } => {
                self.replies += 1;
                self.attempts += 1;
                self.calls.extend(reply.calls().map(|call| (call.clone(), None)));
            }
            Event::CallFailed { .. } => self.attempts += 1,
            Event::Prepared { messages, .. } => {
                for message in messages.iter().filter(|one| one.origin == MessageOrigin::Steering) {
                    self.add_action("steer", &message.text);
                }
            }
            Event::Checked { result: CheckResult::FollowUp { message }, .. } => {
                self.add_action("follow_up", message);
            }
            Event::Interrupt { signal } => {
                let signal = match signal {
                    Signal::Pipe => Signal::Interrupt.name(),
                    signal => signal.name(),
                };
                match stood {
                    Some(
                        StateKind::CallingSending
                        | StateKind::CompactingSending
                        | StateKind::ClosingSending,
                    ) => {
                        let nth = self.attempts + 1;
                        let event = "api_call_start";
                        let action = json!({ "event": event, "nth": nth, "signal": signal });
                        self.actions.push(action);
                    }
                    _ => self.add_action("signal", signal),
                }
            }
            Event::Authorized { authorization: Authorization::Rejected { result }, .. }
            | Event::ToolCompleted { result, .. } => {
                let is_open = |(call, answer): &&mut (ToolCall, Option<ToolResult>)| {
                    answer.is_none() && call.id == result.call
                };
                if let Some((_, answer)) = self.calls.iter_mut().find(is_open) {
                    *answer = Some(result.clone());
                }
            }
            _ => {}
        }
    }

    /// Adds a reply or a change of files, of the session or of a sub-agent.
    fn add_turn(&mut self, stored: &StoredRecord) {
        let StoredContent::Event(event) = &stored.content else { return };
        match event {
            Event::Replied { reply, .. } => {
                self.turns.push(turn_of(reply));
                self.files.record_calls(reply);
            }
            Event::CallFailed { fault, .. } => {
                self.turns.push(json!({ "error": fault_table(fault) }));
            }
            Event::Authorized { authorization: Authorization::Approved { intent, .. }, .. } => {
                self.files.record_intent(intent);
            }
            Event::Authorized { authorization: Authorization::Rejected { result }, .. }
            | Event::ToolCompleted { result, .. } => self.files.record_result(result),
            _ => {}
        }
    }

    /// Adds an action after the newest reply.
    fn add_action(&mut self, action: &str, text: &str) {
        let (event, nth) = match self.replies {
            0 => ("agent_start", 1),
            replies => ("api_call_end outcome=replied", replies),
        };
        self.actions.push(json!({ "event": event, "nth": nth, action: text }));
    }
}

/// Converts a reply to a turn of a script.
fn turn_of(reply: &Reply) -> Value {
    let texts = reply.parts.iter().filter_map(|part| match part {
        ReplyPart::Text(text) => Some(&**text),
        ReplyPart::Call(_) | ReplyPart::Opaque(_) => None,
    });
    let text: String = texts.collect();
    // The arguments stay exactly as the model wrote them.
    let call =
        |call: &ToolCall| json!({ "id": call.id, "name": call.name, "raw": call.arguments.text() });
    let calls: Vec<Value> = reply.calls().map(call).collect();
    let finish = match &reply.finish {
        // An empty turn needs at least its finish reason.
        ReplyFinish::Stop | ReplyFinish::ToolCalls => {
            (text.is_empty() && calls.is_empty()).then_some("stop")
        }
        finish => Some(finish.name()),
    };
    let usage = &reply.usage;
    without_nulls(json!({
        "text": (!text.is_empty()).then_some(text),
        "finish": finish,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cached_input": usage.cached_input,
            "cache_write": usage.cache_write,
            "reasoning": usage.reasoning,
        },
        "calls": (!calls.is_empty()).then_some(calls),
    }))
}

fn fault_table(fault: &Fault) -> Value {
    without_nulls(json!({
        "kind": fault.kind,
        "message": fault.message,
        "wait_ms": fault.retry_after.map(|wait| wait.0 / 1_000),
        "retry": (fault.advice != RetryAdvice::Unspecified).then_some(fault.advice),
        "billed": fault.billed.then_some(true),
    }))
}

fn price_table(price: Price) -> Value {
    let dollars = |micros| MicroUsd(micros).as_dollars();
    json!({
        "input": dollars(price.input),
        "output": dollars(price.output),
        "cached_input": dollars(price.cached_input),
        "cache_write": dollars(price.cache_write),
    })
}
