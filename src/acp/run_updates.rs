//! Updates of a session while a prompt runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol_schema::v1::ToolCall as ClientToolCall;
use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, Cost, MessageId, Plan, SessionId, SessionUpdate, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields, UsageUpdate,
};

use super::call_content::{OldFile, bounded, call_fields, old_files, result_content};
use super::client_connection::ClientConnection;
use super::plan::plan_of;
use crate::machine::{CallPurpose, Effect, Event, RunStatus, StopReason};
use crate::port::{Disconnected, ReplyDelta, RunEvent, lock};
use crate::types::{CallId, EffectId};
use crate::view::public_events::{
    AgentEnd, ApiCallEnd, CallOutcome, PublicEvent, PublicEventKind, RetryCause, Severity,
    ToolCallEnd, ToolCallStart,
};
use crate::view::{LiveEvent, ReportSink, ServerState};
use crate::workspace::WorkspaceRoot;

/// The maximum number of a sub-agent's calls that are shown, the newest ones.
const MAX_SUBAGENT_CALLS: usize = 50;

/// Fields of the calls that are shown to the client and have not ended, by id.
pub(super) type ShownCalls = Arc<Mutex<HashMap<CallId, ToolCallUpdateFields>>>;

/// The calls of sub-agents so far, in order, by the id of the dispatching call.
type SubagentCalls = Arc<Mutex<HashMap<CallId, Vec<ListedCall>>>>;

/// A call in the list of a sub-agent's calls.
struct ListedCall {
    id: CallId,
    title: String,
    /// Whether it has succeeded; `None` while it runs.
    success: Option<bool>,
}

/// Sends the events of a run as updates of its session.
pub(super) struct RunUpdates {
    connection: ClientConnection,
    session: SessionId,
    root: WorkspaceRoot,
    shown: ShownCalls,
    /// The previous content of the files that open calls change.
    old: HashMap<CallId, Vec<OldFile>>,
    call: Option<ShownModelCall>,
    /// The newest text that the client has in full.
    last_text: String,
    /// The agent that runs the prompt.
    agent: Arc<str>,
    subagents: SubagentCalls,
    /// Whether the client shows a plan.
    has_plan: Arc<AtomicBool>,
}

/// Sends the calls of a sub-agent as content of the call that has dispatched it, since the protocol does not nest
/// calls.
struct SubagentUpdates {
    connection: ClientConnection,
    session: SessionId,
    root: WorkspaceRoot,
    dispatch: CallId,
    calls: SubagentCalls,
}

struct ShownModelCall {
    id: EffectId,
    is_shown: bool,
    message: MessageId,
    text: String,
}

impl RunUpdates {
    /// Returns the updates of a session that works in the folder `root`.
    pub(super) fn new(
        connection: ClientConnection,
        session: SessionId,
        root: WorkspaceRoot,
        shown: ShownCalls,
        has_plan: Arc<AtomicBool>,
    ) -> Self {
        let (old, call, last_text) = (HashMap::new(), None, String::new());
        let (agent, subagents) = ("".into(), SubagentCalls::default());
        Self { connection, session, root, shown, old, call, last_text, agent, subagents, has_plan }
    }

    fn send(&self, update: SessionUpdate) -> Result<(), Disconnected> {
        self.connection.update(&self.session, update)
    }

    fn send_thought(&self, text: &str) -> Result<(), Disconnected> {
        let message = self.call.as_ref().map(|call| call.message.clone());
        self.send(SessionUpdate::AgentThoughtChunk(chunk(text, message)))
    }

    /// Sends a part of the model's text. The parts of one reply have the same message id.
    fn send_text(&mut self, text: &str) -> Result<(), Disconnected> {
        let Some(call) = self.call.as_mut().filter(|call| call.is_shown) else { return Ok(()) };
        call.text.push_str(text);
        let message = Some(call.message.clone());
        self.send(SessionUpdate::AgentMessageChunk(chunk(text, message)))
    }

    fn on_call_end(&mut self, end: &ApiCallEnd) -> Result<(), Disconnected> {
        match &end.outcome {
            CallOutcome::Replied { text, .. } => {
                // Without streaming, the text was not sent in parts.
                if self.call.as_ref().is_some_and(|call| call.text.is_empty()) && !text.is_empty() {
                    self.send_text(text)?;
                }
            }
            CallOutcome::Failed { message, .. } => {
                let is_partial = self.call.as_ref().is_some_and(|call| !call.text.is_empty());
                if is_partial {
                    self.send_thought(&format!(
                        "The reply broke off and does not count: {message}"
                    ))?;
                }
            }
            CallOutcome::Cancelled => {}
        }
        if let Some(call) = self.call.take() {
            self.last_text = call.text;
        }
        Ok(())
    }

    fn on_call_start(&mut self, start: &ToolCallStart) -> Result<(), Disconnected> {
        let ToolCallStart { id, name, arguments, .. } = start;
        self.old.insert(id.clone(), old_files(&self.root, name, arguments));
        let fields = call_fields(&self.root, name, arguments);
        lock(&self.shown).insert(id.clone(), fields.clone());
        self.send(SessionUpdate::ToolCall(new_call(id, fields)))
    }

    fn on_tool_end(&mut self, end: &ToolCallEnd) -> Result<(), Disconnected> {
        let ToolCallEnd { id, success, output, changes, .. } = end;
        lock(&self.shown).remove(id);
        let old = self.old.remove(id).unwrap_or_default();
        let status = if *success { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        let changes = if *success { changes.as_slice() } else { &[] };
        let calls = lock(&self.subagents).remove(id);
        let mut content: Vec<_> = calls.iter().map(|calls| call_list(calls).into()).collect();
        content.extend(result_content(&self.root, output, &old, changes));
        let fields = ToolCallUpdateFields::new().status(status).content(content);
        self.send(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call_id(id), fields)))
    }

    /// Sends the output of a run that a limit ended, unless it is the model's text that the client already has.
    fn on_end(&self, end: &AgentEnd) -> Result<(), Disconnected> {
        let is_interrupted = matches!(end.reason, StopReason::UserInterrupt(_));
        let Some(output) = end.output.as_deref() else { return Ok(()) };
        if end.status == RunStatus::Success
            && let Some(plan) = plan_of(&self.agent, output)
        {
            self.has_plan.store(true, Ordering::Relaxed);
            self.send(SessionUpdate::Plan(plan))?;
        }
        if is_interrupted
            || end.status == RunStatus::Failed
            || output.trim() == self.last_text.trim()
        {
            return Ok(());
        }
        self.send(SessionUpdate::AgentMessageChunk(chunk(output, None)))
    }
}

impl ReportSink for RunUpdates {
    fn subagent_sink(&self, call: &CallId) -> Option<Box<dyn ReportSink>> {
        let (connection, session) = (self.connection.clone(), self.session.clone());
        let (root, calls) = (self.root.clone(), Arc::clone(&self.subagents));
        let dispatch = call.clone();
        Some(Box::new(SubagentUpdates { connection, session, root, dispatch, calls }))
    }

    fn on_run_event(&mut self, event: &RunEvent<'_>) {
        // The public events notice a client that is gone.
        let _ = match event {
            RunEvent::ReplyDelta { id, delta: ReplyDelta::Reasoning(text), .. }
                if self.call.as_ref().is_some_and(|call| call.id == *id && call.is_shown) =>
            {
                self.send_thought(text)
            }
            RunEvent::Started { output, .. } | RunEvent::Handled { output, .. } => {
                let mut done = Ok(());
                for effect in &output.effects {
                    if let Effect::RunTool { call, .. } = effect {
                        let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
                        let update = ToolCallUpdate::new(call_id(&call.id), fields);
                        done = self.send(SessionUpdate::ToolCallUpdate(update));
                    }
                }
                done
            }
            _ => Ok(()),
        };
        if let RunEvent::Handled { machine, event: Event::Replied { .. }, .. } = event {
            let run = machine.state.run();
            let used = machine.conversation.context_usage().estimate().0;
            let cost = run.rules.price.map(|_| Cost::new(run.used.cost.as_dollars(), "USD"));
            let usage = UsageUpdate::new(used, run.rules.context.window.0).cost(cost);
            let _ = self.send(SessionUpdate::UsageUpdate(usage));
        }
    }

    fn on_live(&mut self, live: &LiveEvent<'_>) {
        // The public events notice a client that is gone.
        let _ = match *live {
            LiveEvent::Output { call, text } if lock(&self.shown).contains_key(call) => {
                let fields = ToolCallUpdateFields::new().content(vec![bounded(text).into()]);
                self.send(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call_id(call), fields)))
            }
            LiveEvent::Server { name, state: ServerState::Starting } => {
                self.send_thought(&format!("The MCP server {name} is being started."))
            }
            LiveEvent::Server { name, state: ServerState::Failed } => {
                self.send_thought(&format!("The MCP server {name} could not be started."))
            }
            _ => Ok(()),
        };
    }

    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        match &event.kind {
            PublicEventKind::AgentStart(start) => {
                self.agent = Arc::clone(&start.agent);
                // No agent reports the current step of the last plan, so its steps would stay pending.
                match self.has_plan.swap(false, Ordering::Relaxed) {
                    true => self.send(SessionUpdate::Plan(Plan::new(Vec::new()))),
                    false => Ok(()),
                }
            }
            PublicEventKind::ApiCallStart(start) => {
                let is_shown = match start.purpose {
                    CallPurpose::Agent | CallPurpose::Closing => true,
                    CallPurpose::Compaction => false,
                };
                let message = MessageId::new(format!("{}-{}", self.session, event.seq));
                let text = String::new();
                self.call = Some(ShownModelCall { id: start.call, is_shown, message, text });
                Ok(())
            }
            PublicEventKind::TextDelta(delta) => self.send_text(&delta.text),
            PublicEventKind::ApiCallEnd(end) => self.on_call_end(end),
            PublicEventKind::ToolCallStart(start) => self.on_call_start(start),
            PublicEventKind::ToolCallEnd(end) => self.on_tool_end(end),
            PublicEventKind::AgentEnd(end) => self.on_end(end),
            PublicEventKind::SteeringReceived(message) => {
                self.send(SessionUpdate::UserMessageChunk(chunk(&message.text, None)))
            }
            PublicEventKind::Retry(RetryCause::Fault { fault, wait, .. }) => {
                let seconds = Duration::from(*wait).as_secs_f64();
                self.send_thought(&format!(
                    "The model is called again in {seconds:.1} s ({fault})."
                ))
            }
            PublicEventKind::ModelFallback(fallback) => self.send_thought(&format!(
                "{} failed ({}); continuing with {}.",
                fallback.from, fallback.fault, fallback.to
            )),
            PublicEventKind::Error(error) => {
                match error.severity {
                    Severity::Warning => log::warn!("{}", error.message),
                    Severity::Error => log::error!("{}", error.message),
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl ReportSink for SubagentUpdates {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        let mut calls = lock(&self.calls);
        let calls = calls.entry(self.dispatch.clone()).or_default();
        match &event.kind {
            PublicEventKind::ToolCallStart(ToolCallStart { id, name, arguments, .. }) => {
                let title = call_fields(&self.root, name, arguments).title.unwrap_or_default();
                calls.push(ListedCall { id: id.clone(), title, success: None });
            }
            PublicEventKind::ToolCallEnd(ToolCallEnd { id, success, .. }) => {
                let ended = calls.iter_mut().rev().find(|call| call.id == *id);
                ended.into_iter().for_each(|call| call.success = Some(*success));
            }
            _ => return Ok(()),
        }
        let fields = ToolCallUpdateFields::new().content(vec![call_list(calls).into()]);
        let update = ToolCallUpdate::new(call_id(&self.dispatch), fields);
        self.connection.update(&self.session, SessionUpdate::ToolCallUpdate(update))
    }
}

/// Returns the newest calls of a sub-agent as a Markdown list.
fn call_list(calls: &[ListedCall]) -> String {
    let omitted = calls.len().saturating_sub(MAX_SUBAGENT_CALLS);
    let first = (omitted > 0).then(|| format!("- … {omitted} more\n"));
    let lines = calls[omitted..].iter().map(|call| {
        let mark = match call.success {
            None => "…",
            Some(true) => "✓",
            Some(false) => "✗",
        };
        format!("- {mark} {}\n", call.title)
    });
    first.into_iter().chain(lines).collect()
}

/// Returns a call that the client does not know yet.
pub(super) fn new_call(id: &CallId, fields: ToolCallUpdateFields) -> ClientToolCall {
    let mut call = ClientToolCall::new(call_id(id), "");
    call.update(fields);
    call
}

/// Returns the id of a call for the client.
pub(super) fn call_id(id: &CallId) -> Arc<str> {
    Arc::clone(&id.0)
}

/// Returns a chunk of a message.
pub(super) fn chunk(text: &str, message: Option<MessageId>) -> ContentChunk {
    ContentChunk::new(ContentBlock::from(text)).message_id(message)
}
