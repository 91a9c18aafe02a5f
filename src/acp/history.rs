//! The history of a stored session, as updates like those that a client gets while a prompt runs.

use agent_client_protocol_schema::v1::{SessionUpdate, ToolCallStatus, ToolCallUpdateFields};
use serde_json::Value;

use super::call_content::{bounded, call_fields};
use super::run_updates::{chunk, new_call};
use crate::journal::{JournalError, SessionHistory, SessionId, SessionStore};
use crate::machine::{CallState, EntryId, Executing, Machine, State};
use crate::types::{ConversationItem, MessageOrigin, Reply, ReplyPart, ToolCall, ToolResult};
use crate::workspace::WorkspaceRoot;

/// A stored session.
pub(super) struct StoredSession {
    pub(super) history: SessionHistory,
    pub(super) updates: Vec<SessionUpdate>,
}

/// Reads a stored session.
///
/// # Errors
///
/// Fails if there is no such session, or it can't be read.
pub(super) fn read_session(
    store: &SessionStore,
    session: SessionId,
    root: &WorkspaceRoot,
) -> Result<StoredSession, JournalError> {
    let mut replay = HistoryReplay { root, newest: None, updates: Vec::new() };
    let mut has_begun = false;
    let (history, _) = store.replay(session, |history, _, _| {
        if !std::mem::replace(&mut has_begun, true) {
            replay.add_entries(&history.header.start_machine().0);
        }
        replay.add_entries(&history.machine);
    })?;
    replay.add_entries(&history.machine);
    replay.add_open_calls(&history.machine.state);
    Ok(StoredSession { history, updates: replay.updates })
}

struct HistoryReplay<'a> {
    root: &'a WorkspaceRoot,
    /// The newest added entry of the conversation.
    newest: Option<EntryId>,
    updates: Vec<SessionUpdate>,
}

impl HistoryReplay<'_> {
    /// Adds the entries that are new in the conversation.
    fn add_entries(&mut self, machine: &Machine) {
        let entries = machine.conversation.entries();
        let is_new = |id: EntryId| self.newest.is_none_or(|newest| id > newest);
        let new = entries.iter().rev().take_while(|entry| is_new(entry.id)).count();
        for entry in &entries[entries.len() - new..] {
            self.newest = self.newest.max(Some(entry.id));
            match &entry.item {
                ConversationItem::User(message) => match message.origin {
                    MessageOrigin::Task | MessageOrigin::Steering | MessageOrigin::FollowUp => {
                        let text = chunk(&message.text, None);
                        self.updates.push(SessionUpdate::UserMessageChunk(text));
                    }
                    MessageOrigin::System | MessageOrigin::Check | MessageOrigin::Summary => {}
                },
                ConversationItem::Assistant(reply) => self.add_text(reply),
                ConversationItem::Exchange(exchange) => {
                    self.add_text(exchange.reply());
                    for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                        self.add_call(call, Some(result));
                    }
                }
            }
        }
    }

    /// Adds the calls of an interrupted turn. Their effects are determined when the session continues.
    fn add_open_calls(&mut self, state: &State) {
        let State::Executing(Executing { reply, calls, .. }) = state else { return };
        self.add_text(reply);
        for open in calls {
            let result = match &open.state {
                CallState::Completed(result) => Some(result),
                _ => None,
            };
            self.add_call(&open.call, result);
        }
    }

    fn add_text(&mut self, reply: &Reply) {
        for part in reply.parts.iter() {
            if let ReplyPart::Text(text) = part
                && !text.is_empty()
            {
                self.updates.push(SessionUpdate::AgentMessageChunk(chunk(text, None)));
            }
        }
    }

    fn add_call(&mut self, call: &ToolCall, result: Option<&ToolResult>) {
        let text = call.arguments.text();
        let arguments =
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        let mut fields = call_fields(self.root, &call.name, &arguments);
        // The files have changed since, so the planned change is no longer known.
        fields.content = None;
        let fields = match result {
            None => fields.status(ToolCallStatus::Failed),
            Some(result) => with_result(fields, result),
        };
        self.updates.push(SessionUpdate::ToolCall(new_call(&call.id, fields)));
    }
}

fn with_result(fields: ToolCallUpdateFields, result: &ToolResult) -> ToolCallUpdateFields {
    let status = if result.is_ok() { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
    fields.status(status).content(vec![bounded(&result.text).into()])
}
