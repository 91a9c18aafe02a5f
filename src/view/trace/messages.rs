//! What was said, in the order in which it entered the conversation.

use std::sync::Arc;

use serde::Serialize;

use super::moment;
use crate::machine::{
    CallState, ConversationEntry, EntryId, Executing, Machine, MachineNote, MachineOutput, State,
};
use crate::model::{
    ConversationItem, MessageOrigin, Reply, RunTime, ToolCall, ToolResult, ToolStatus,
};

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceMessage {
    /// The record that made it part of the conversation; zero for what the session began with.
    pub seq: u64,
    /// When it became a part of it.
    #[serde(rename = "at_ms", serialize_with = "moment")]
    pub at: RunTime,
    /// Who says it.
    #[serde(flatten)]
    pub speaker: Speaker,
    /// What is said; the arguments, when it is a tool call.
    pub text: Arc<str>,
}

/// Who says something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Speaker {
    /// Somebody tells the model something.
    User {
        /// Who.
        origin: MessageOrigin,
    },
    /// The model.
    Assistant,
    /// The model calls a tool.
    ToolCall {
        /// The tool.
        name: Arc<str>,
    },
    /// A tool answers.
    ToolResult {
        /// The tool.
        name: Arc<str>,
        /// How the call ended.
        status: ToolStatus,
    },
    /// The model, in a reply that was cancelled and counts for nothing.
    Partial,
}

/// The messages, while they are collected.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageCollector {
    messages: Vec<TraceMessage>,
    newest: Option<EntryId>,
}

impl MessageCollector {
    /// Takes in what the conversation has had since the last time.
    pub(super) fn add_new(
        &mut self,
        seq: u64,
        at: RunTime,
        fold: &Machine,
        outcomes: &MachineOutput,
    ) {
        let entries = fold.conversation.entries();
        let is_new =
            |entry: &&ConversationEntry| self.newest.is_none_or(|newest| entry.id > newest);
        let was_compacted =
            outcomes.notes.iter().any(|note| matches!(note, MachineNote::Compacted { .. }));
        let new: Vec<&ConversationEntry> = if was_compacted {
            // A summary is newer than what stands behind it.
            entries.iter().filter(is_new).collect()
        } else {
            let count = entries.iter().rev().take_while(is_new).count();
            entries[entries.len() - count..].iter().collect()
        };
        let newest = new.iter().map(|entry| entry.id).max();
        for entry in new {
            match &entry.item {
                ConversationItem::User(message) => {
                    let speaker = Speaker::User { origin: message.origin };
                    self.push(seq, at, speaker, Arc::clone(&message.text));
                }
                ConversationItem::Assistant(reply) => self.add_reply(seq, at, reply),
                ConversationItem::Exchange(exchange) => {
                    self.add_reply(seq, at, exchange.reply());
                    for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                        self.add_call(seq, at, call, Some(result));
                    }
                }
            }
        }
        self.newest = newest.or(self.newest);
    }

    /// Takes in what a cancelled request had said.
    pub(super) fn add_partial(&mut self, seq: u64, at: RunTime, text: &str) {
        self.push(seq, at, Speaker::Partial, text.into());
    }

    /// Takes in the reply whose calls are still under way.
    pub(super) fn add_open_reply(&mut self, at: RunTime, fold: &Machine) {
        let State::Executing(Executing { reply, calls, .. }) = &fold.state else { return };
        let seq = self.messages.last().map_or(0, |message| message.seq);
        self.add_reply(seq, at, reply);
        for open in calls {
            let result = match &open.state {
                CallState::Completed(result) => Some(result),
                CallState::Queued | CallState::Authorizing { .. } | CallState::Running { .. } => {
                    None
                }
            };
            self.add_call(seq, at, &open.call, result);
        }
    }

    /// Returns all of them.
    pub(super) fn finish(self) -> Vec<TraceMessage> {
        self.messages
    }

    fn add_reply(&mut self, seq: u64, at: RunTime, reply: &Reply) {
        if reply.has_text() {
            self.push(seq, at, Speaker::Assistant, reply.text());
        }
    }

    fn add_call(&mut self, seq: u64, at: RunTime, call: &ToolCall, result: Option<&ToolResult>) {
        let name = || Arc::clone(&call.name);
        self.push(seq, at, Speaker::ToolCall { name: name() }, call.arguments.text().into());
        if let Some(result) = result {
            let speaker = Speaker::ToolResult { name: name(), status: result.status };
            self.push(seq, at, speaker, Arc::clone(&result.text));
        }
    }

    fn push(&mut self, seq: u64, at: RunTime, speaker: Speaker, text: Arc<str>) {
        self.messages.push(TraceMessage { seq, at, speaker, text });
    }
}
