//! Tracking of the reported tool calls.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::public_event::decision_of;
use super::{PublicEventKind, ToolCallEnd, ToolCallStart};
use crate::machine::{CallState, Effect, EntryId, Event, Executing, Machine, State};
use crate::types::{
    CallId, ConversationItem, Decision, EffectId, ToolArguments, ToolCall, ToolResult,
};

/// The reported tool calls. Calls that end without authorization are reported, too.
#[derive(Default)]
pub(super) struct ToolCallTracker {
    /// The newest examined entry of the conversation.
    newest: Option<EntryId>,
    reported: HashMap<CallId, ReportedCall>,
    /// The calls that are being authorized.
    authorizing: HashMap<EffectId, CallId>,
}

/// The reported part of a call.
enum ReportedCall {
    Started { path: Option<Arc<str>>, decision: Option<Decision>, step: u32 },
    Ended,
}

impl ToolCallTracker {
    /// Skips the conversation before the run.
    pub(super) fn begin(&mut self, machine: &Machine) {
        self.newest = machine.conversation.entries().iter().map(|entry| entry.id).max();
    }

    /// Returns the starts for new effects.
    pub(super) fn take_starts(&mut self, effects: &[Effect], step: u32) -> Vec<PublicEventKind> {
        let start = |effect: &Effect| {
            let Effect::Authorize { id, call } = effect else { return None };
            self.authorizing.insert(*id, call.id.clone());
            self.start(call, step)
        };
        effects.iter().filter_map(start).collect()
    }

    /// Records the decision on a call.
    pub(super) fn on_event(&mut self, event: &Event) {
        if let Event::Authorized { id, authorization } = event
            && let Some(call) = self.authorizing.remove(id)
            && let Some(ReportedCall::Started { decision, .. }) = self.reported.get_mut(&call)
        {
            *decision = decision_of(authorization);
        }
    }

    /// Returns the ends of calls that are not reported yet.
    pub(super) fn take_ends(&mut self, machine: &Machine) -> Vec<PublicEventKind> {
        let step = machine.state.run().steps;
        let mut ends = Vec::new();
        if let State::Executing(Executing { calls, .. }) = &machine.state {
            for open in calls {
                if let CallState::Completed(result) = &open.state {
                    self.end(&open.call, result, step, &mut ends);
                }
            }
        }
        let entries = machine.conversation.entries();
        let is_new = |id: EntryId| self.newest.is_none_or(|newest| id > newest);
        let new = entries.iter().rev().take_while(|entry| is_new(entry.id)).count();
        for entry in &entries[entries.len() - new..] {
            if let ConversationItem::Exchange(exchange) = &entry.item {
                for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                    self.end(call, result, step, &mut ends);
                }
                // Calls of a complete exchange do not occur again.
                self.reported.clear();
                self.authorizing.clear();
            }
            self.newest = self.newest.max(Some(entry.id));
        }
        ends
    }

    fn start(&mut self, call: &ToolCall, step: u32) -> Option<PublicEventKind> {
        if self.reported.contains_key(&call.id) {
            return None;
        }
        let arguments = arguments(call);
        let path = arguments.get("path").and_then(Value::as_str).map(Arc::from);
        self.reported.insert(call.id.clone(), ReportedCall::Started { path, decision: None, step });
        Some(PublicEventKind::ToolCallStart(ToolCallStart {
            id: call.id.clone(),
            name: Arc::clone(&call.name),
            arguments: Arc::new(arguments),
            step,
        }))
    }

    fn end(
        &mut self,
        call: &ToolCall,
        result: &ToolResult,
        step: u32,
        ends: &mut Vec<PublicEventKind>,
    ) {
        ends.extend(self.start(call, step));
        let Some(ReportedCall::Started { path, decision, step }) =
            self.reported.insert(call.id.clone(), ReportedCall::Ended)
        else {
            return;
        };
        let only = || match result.changes.as_slice() {
            [only] => Some(only.path.to_text().into()),
            _ => None,
        };
        ends.push(PublicEventKind::ToolCallEnd(ToolCallEnd {
            id: call.id.clone(),
            name: Arc::clone(&call.name),
            status: result.status,
            success: result.is_ok(),
            path: path.or_else(only),
            decision,
            duration: result.duration,
            output: Arc::clone(&result.text),
            changes: result.changes.clone(),
            step,
        }));
    }
}

/// Returns the arguments as JSON. Invalid arguments become a string.
pub(super) fn arguments(call: &ToolCall) -> Value {
    let text = call.arguments.text();
    let is_complete = matches!(call.arguments, ToolArguments::Complete { .. });
    let parsed = is_complete.then(|| serde_json::from_str(text).ok()).flatten();
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}
