//! The tool calls, as far as they were told.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Decision, Kind, ToolCallEnd, ToolCallStart};
use crate::machine::{Effect, EntryId, Event, Executing, Fold, Slot, State};
use crate::model::{Arguments, CallId, EffectId, Item, ToolCall, ToolResult};

/// Which tool calls were told of. A call that is answered without being judged is told of as well.
#[derive(Default)]
pub(super) struct Tools {
    /// The newest entry of the conversation that was looked at.
    newest: Option<EntryId>,
    told: HashMap<CallId, Told>,
    /// The calls that are being judged.
    vetting: HashMap<EffectId, CallId>,
    decisions: HashMap<CallId, Decision>,
}

/// How much of a call was told.
enum Told {
    Begun { path: Option<Arc<str>>, step: u32 },
    Ended,
}

impl Tools {
    /// Leaves out what the conversation had before the run began.
    pub(super) fn begin(&mut self, fold: &Fold) {
        self.newest = fold.conversation.entries().iter().map(|entry| entry.id).max();
    }

    /// Returns the starts that follow from effects.
    pub(super) fn started(&mut self, effects: &[Effect], step: u32) -> Vec<Kind> {
        let vetted = effects.iter().filter_map(|effect| match effect {
            Effect::Vet { id, call } => Some((*id, call)),
            Effect::Prepare { .. }
            | Effect::Call { .. }
            | Effect::Run { .. }
            | Effect::Check { .. }
            | Effect::Cancel { .. }
            | Effect::End => None,
        });
        let start = |(id, call): (EffectId, &ToolCall)| {
            self.vetting.insert(id, call.id.clone());
            self.start(call, step)
        };
        vetted.filter_map(start).collect()
    }

    /// Takes notice of what was decided on a call.
    pub(super) fn decided(&mut self, event: &Event) {
        if let Event::Vetted { id, verdict } = event
            && let Some(call) = self.vetting.remove(id)
            && let Some(decision) = Decision::of(verdict)
        {
            self.decisions.insert(call, decision);
        }
    }

    /// Returns the ends that a fold shows and that were not told yet.
    pub(super) fn ended(&mut self, fold: &Fold) -> Vec<Kind> {
        let step = fold.state.run().steps;
        let mut ends = Vec::new();
        if let State::Executing(Executing { calls, .. }) = &fold.state {
            for open in calls {
                if let Slot::Settled(result) = &open.slot {
                    self.end(&open.call, result, step, &mut ends);
                }
            }
        }
        let entries = fold.conversation.entries();
        let is_new = |id: EntryId| self.newest.is_none_or(|newest| id > newest);
        let new = entries.iter().rev().take_while(|entry| is_new(entry.id)).count();
        for entry in &entries[entries.len() - new..] {
            if let Item::Exchange(exchange) = &entry.item {
                for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                    self.end(call, result, step, &mut ends);
                }
                // Nothing more is heard of its calls.
                self.told.clear();
                self.vetting.clear();
                self.decisions.clear();
            }
            self.newest = self.newest.max(Some(entry.id));
        }
        ends
    }

    fn start(&mut self, call: &ToolCall, step: u32) -> Option<Kind> {
        if self.told.contains_key(&call.id) {
            return None;
        }
        let arguments = arguments(call);
        let path = arguments.get("path").and_then(Value::as_str).map(Arc::from);
        self.told.insert(call.id.clone(), Told::Begun { path, step });
        Some(Kind::ToolCallStart(ToolCallStart {
            id: call.id.clone(),
            name: Arc::clone(&call.name),
            arguments: Arc::new(arguments),
            step,
        }))
    }

    fn end(&mut self, call: &ToolCall, result: &ToolResult, step: u32, ends: &mut Vec<Kind>) {
        ends.extend(self.start(call, step));
        let Some(Told::Begun { path, step }) = self.told.insert(call.id.clone(), Told::Ended)
        else {
            return;
        };
        let only = || match result.changes.as_slice() {
            [only] => Some(Arc::clone(&only.path)),
            _ => None,
        };
        ends.push(Kind::ToolCallEnd(ToolCallEnd {
            id: call.id.clone(),
            name: Arc::clone(&call.name),
            status: result.status,
            success: result.is_ok(),
            path: path.or_else(only),
            decision: self.decisions.remove(&call.id),
            took: result.took,
            output: Arc::clone(&result.text),
            changes: result.changes.clone(),
            step,
        }));
    }
}

/// Returns the arguments as JSON; as a string where they are none.
fn arguments(call: &ToolCall) -> Value {
    let text = call.arguments.text();
    match &call.arguments {
        Arguments::Complete { .. } => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
        }
        Arguments::Malformed { .. } | Arguments::Cut { .. } => Value::String(text.to_owned()),
    }
}
