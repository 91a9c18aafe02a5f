//! The messages of a session, in the order in which they entered the conversation.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::moment;
use crate::machine::{
    CallState, ConversationEntry, EntryId, Executing, Machine, MachineNote, MachineOutput, State,
};
use crate::types::{
    CallId, ConversationItem, MessageOrigin, Reply, RunTime, ToolCall, ToolResult, ToolStatus,
};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TraceMessage {
    /// The record that added it to the conversation; zero for the header.
    pub seq: u64,
    /// The session time at which it was added.
    #[serde(rename = "at_ms", serialize_with = "moment")]
    pub at: RunTime,
    /// The index of the request that sends it first, or whose reply contains it.
    pub request: usize,
    /// The id of the tool call, for a call or its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Its role.
    #[serde(flatten)]
    pub speaker: Speaker,
    /// The text; for a tool call, its arguments.
    pub text: Arc<str>,
}

/// The role of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Speaker {
    /// A message to the model.
    User {
        /// Its origin.
        origin: MessageOrigin,
    },
    /// The model.
    Assistant,
    /// A tool call of the model.
    ToolCall {
        /// The name of the tool.
        name: Arc<str>,
    },
    /// A tool result.
    ToolResult {
        /// The name of the tool.
        name: Arc<str>,
        /// The status of the call.
        status: ToolStatus,
    },
    /// The model, in a reply that was cancelled and discarded.
    Partial,
}

/// Returns the conversation's entries after the newest known one, and updates `known`.
pub(in crate::view) fn new_entries<'a>(
    machine: &'a Machine,
    output: &MachineOutput,
    known: &mut Option<EntryId>,
) -> Vec<&'a ConversationEntry> {
    let entries = machine.conversation.entries();
    let is_new = |entry: &&ConversationEntry| known.is_none_or(|newest| entry.id > newest);
    let was_compacted =
        output.notes.iter().any(|note| matches!(note, MachineNote::Compacted { .. }));
    let new: Vec<&ConversationEntry> = if was_compacted {
        // The id of a summary is newer than those of the entries after it.
        entries.iter().filter(is_new).collect()
    } else {
        let count = entries.iter().rev().take_while(is_new).count();
        entries[entries.len() - count..].iter().collect()
    };
    *known = new.iter().map(|entry| entry.id).max().or(*known);
    new
}

/// Collects the messages.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageCollector {
    pub(super) messages: Vec<TraceMessage>,
    position: MessagePosition,
    newest: Option<EntryId>,
}

/// The position of the next messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessagePosition {
    /// The present record.
    pub(super) seq: u64,
    /// The session time of the record.
    pub(super) at: RunTime,
    /// The index of the request that will be sent next.
    pub(super) next_request: usize,
    /// The index of the newest request whose reply is part of the conversation.
    pub(super) last_reply: usize,
}

impl MessageCollector {
    /// Sets the position of the next messages.
    pub(super) fn set_position(&mut self, position: MessagePosition) {
        self.position = position;
    }

    /// Adds the new entries of the conversation.
    pub(super) fn add_new(&mut self, machine: &Machine, output: &MachineOutput) {
        for entry in new_entries(machine, output, &mut self.newest) {
            match &entry.item {
                ConversationItem::User(message) => {
                    let speaker = Speaker::User { origin: message.origin };
                    let text = Arc::clone(&message.text);
                    self.push(speaker, self.position.next_request, None, text);
                }
                ConversationItem::Assistant(reply) => self.add_reply(reply),
                ConversationItem::Exchange(exchange) => {
                    self.add_reply(exchange.reply());
                    for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                        self.add_call(call, Some(result));
                    }
                }
            }
        }
    }

    /// Adds the partial text of a cancelled request.
    pub(super) fn add_partial(&mut self, text: &str) {
        let request = self.position.next_request.saturating_sub(1);
        self.push(Speaker::Partial, request, None, text.into());
    }

    /// Adds the reply whose calls are still running.
    pub(super) fn add_open_reply(&mut self, at: RunTime, machine: &Machine) {
        let State::Executing(Executing { reply, calls, .. }) = &machine.state else { return };
        let seq = self.messages.last().map_or(0, |message| message.seq);
        self.position = MessagePosition { seq, at, ..self.position };
        self.add_reply(reply);
        for open in calls {
            let result = match &open.state {
                CallState::Completed(result) => Some(result),
                _ => None,
            };
            self.add_call(&open.call, result);
        }
    }

    fn add_reply(&mut self, reply: &Reply) {
        if reply.has_text() {
            self.push(Speaker::Assistant, self.position.last_reply, None, reply.text());
        }
    }

    fn add_call(&mut self, call: &ToolCall, result: Option<&ToolResult>) {
        let name = || Arc::clone(&call.name);
        let (request, id) = (self.position.last_reply, || Some(call.id.clone()));
        let arguments = call.arguments.text().into();
        self.push(Speaker::ToolCall { name: name() }, request, id(), arguments);
        if let Some(result) = result {
            let speaker = Speaker::ToolResult { name: name(), status: result.status };
            self.push(speaker, request, id(), Arc::clone(&result.text));
        }
    }

    fn push(&mut self, speaker: Speaker, request: usize, call: Option<CallId>, text: Arc<str>) {
        let MessagePosition { seq, at, .. } = self.position;
        self.messages.push(TraceMessage { seq, at, request, call, speaker, text });
    }
}
