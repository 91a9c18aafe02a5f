//! Recording the run of a scenario, and sending its scripted inputs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::scheduled_action::{ScenarioAction, ScheduledAction};
use crate::machine::{ConversationEntry, Event};
use crate::port::{Disconnected, MessageSource, Model, ModelCall, ModelRequest, lock};
use crate::runner::DriverInput;
use crate::types::{ConversationItem, Fault, MessageOrigin, Reply, ReplyPart, UserMessage};
use crate::view::ReportSink;
use crate::view::public_events::PublicEvent;

/// The record of a run.
pub(super) struct RecordedRun {
    /// The record, with the names of the expectations, except for the events.
    pub(super) record: Value,
    pub(super) events: Vec<Value>,
    /// The files of the workspace before the run.
    pub(super) original_files: BTreeMap<String, String>,
    /// The files of the workspace after the run.
    pub(super) files: BTreeMap<String, String>,
}

/// The state shared by the recorders of a run.
#[derive(Clone, Default)]
pub(super) struct SharedRecording(Arc<Mutex<RecordingState>>);

#[derive(Default)]
struct RecordingState {
    events: Vec<Value>,
    requests: Vec<Value>,
    /// The first entry that was not in any request yet.
    next_entry: u64,
    steering: Vec<UserMessage>,
    follow_ups: VecDeque<Arc<str>>,
    /// The scheduled actions, each with the number of matching events to skip.
    scheduled: Vec<(ScheduledAction, u32)>,
}

/// Sends an input to the driver.
pub(super) type InputSender = Box<dyn Fn(DriverInput) + Send>;

impl RecordedRun {
    /// Returns the files that have changed.
    pub(super) fn changed_files(&self) -> impl Iterator<Item = String> {
        let all = self.files.keys().chain(self.original_files.keys()).cloned();
        all.filter(|path| self.files.get(path) != self.original_files.get(path))
    }
}

impl SharedRecording {
    pub(super) fn new(at: &[ScheduledAction]) -> Self {
        let at = at.iter().map(|at| (at.clone(), at.nth.saturating_sub(1))).collect();
        Self(Arc::new(Mutex::new(RecordingState { scheduled: at, ..RecordingState::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, RecordingState> {
        lock(&self.0)
    }

    /// Removes the events and the requests, and returns them.
    pub(super) fn take(&self) -> (Vec<Value>, Vec<Value>) {
        let mut inner = self.lock();
        (std::mem::take(&mut inner.events), std::mem::take(&mut inner.requests))
    }
}

/// Records the events of a run, and sends the inputs that are scheduled at them.
pub(super) struct EventScript {
    pub(super) recording: SharedRecording,
    pub(super) sender: InputSender,
}

impl ReportSink for EventScript {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        let event = serde_json::to_value(event).unwrap_or_default();
        let mut inner = self.recording.lock();
        let mut due = Vec::new();
        inner.scheduled.retain_mut(|(at, before)| {
            let fits = at.event.matches(&event);
            if fits && *before == 0 {
                due.push(at.action.clone());
                return false;
            }
            *before -= u32::from(fits);
            true
        });
        for happening in due {
            match happening {
                ScenarioAction::Steer(text) => {
                    inner.steering.push(UserMessage::new(MessageOrigin::Steering, text));
                }
                ScenarioAction::FollowUp(text) => inner.follow_ups.push_back(text.into()),
                ScenarioAction::Signal(signal) => {
                    (self.sender)(DriverInput::Event(Event::Interrupt { signal }));
                }
            }
        }
        inner.events.push(event);
        Ok(())
    }
}

/// A source of the scripted messages.
pub(super) struct ScriptedMessages(pub(super) SharedRecording);

impl MessageSource for ScriptedMessages {
    fn take_messages(&mut self) -> Vec<UserMessage> {
        std::mem::take(&mut self.0.lock().steering)
    }

    fn take_follow_up(&mut self) -> Option<Arc<str>> {
        self.0.lock().follow_ups.pop_front()
    }
}

/// Records the requests to a model.
pub(super) struct RecordingModel {
    pub(super) recording: SharedRecording,
    pub(super) model: Box<dyn Model>,
}

impl Model for RecordingModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut inner = self.recording.lock();
        let next = inner.next_entry;
        let fresh = ask.entries.iter().filter(|entry| entry.id.0 >= next);
        let mut new: Vec<String> = fresh.flat_map(entry_lines).collect();
        new.extend(ask.instruction.map(|text| format!("instruction: {text}")));
        inner.next_entry = ask.entries.last().map_or(next, |entry| next.max(entry.id.0 + 1));
        inner.requests.push(json!({
            "purpose": ask.purpose,
            "attempt": ask.attempt,
            "max_output": ask.max_output,
            "entries": ask.entries.len(),
            "tools": ask.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
            "system": ask.system,
            "new": new,
        }));
        drop(inner);
        self.model.prepare(ask)
    }

    fn request_settings(&self) -> Value {
        self.model.request_settings()
    }
}

/// Returns the readable lines of an entry.
fn entry_lines(entry: &ConversationEntry) -> Vec<String> {
    let texts = |reply: &Reply| -> Vec<String> {
        let line = |part: &ReplyPart| match part {
            ReplyPart::Text(text) => Some(format!("assistant: {text}")),
            ReplyPart::Call(call) => Some(format!("call {} {}", call.name, call.arguments.text())),
            ReplyPart::Opaque(_) => None,
        };
        reply.parts.iter().filter_map(line).collect()
    };
    match &entry.item {
        ConversationItem::User(message) => vec![format!("user: {}", message.text)],
        ConversationItem::Assistant(reply) => texts(reply),
        ConversationItem::Exchange(exchange) => {
            let results = exchange.results().iter();
            let results = results.map(|result| format!("{}: {}", result.status, result.text));
            texts(exchange.reply()).into_iter().chain(results).collect()
        }
    }
}
