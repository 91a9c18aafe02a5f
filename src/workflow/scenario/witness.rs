//! Who sees what happens on the stage, and makes happen what is to happen meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::file::{At, Happening};
use crate::machine::{Entry, Event, Purpose};
use crate::model::{Fault, Item, Origin, Part, Reply, UserMessage};
use crate::port::{Ask, Gone, Mailbox, Model, ModelCall};
use crate::runner::Arrival;
use crate::view::public::PublicEvent;
use crate::view::{Lost, Output, Patience, RunResult};

/// What was seen of a run.
pub(super) struct Witnessed {
    pub(super) result: RunResult,
    pub(super) output: String,
    pub(super) error: String,
    pub(super) events: Vec<Value>,
    pub(super) planned: Vec<String>,
    pub(super) tools: Vec<Called>,
    pub(super) requests: Vec<Request>,
    /// The files of the workspace, before and after.
    pub(super) before: BTreeMap<String, String>,
    pub(super) files: BTreeMap<String, String>,
}

/// A tool call, and its answer.
pub(super) struct Called {
    pub(super) name: String,
    pub(super) status: String,
    pub(super) text: String,
}

/// A request to the model.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) purpose: String,
    pub(super) attempt: u32,
    pub(super) max_output: Option<u64>,
    pub(super) entries: usize,
    pub(super) tools: Vec<String>,
    pub(super) system: String,
    pub(super) new: Vec<String>,
}

/// What is shared between those who see and those who act.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    events: Vec<Value>,
    requests: Vec<Request>,
    /// The first entry that no request has had yet.
    next: u64,
    steering: Vec<UserMessage>,
    follow_ups: VecDeque<Arc<str>>,
    /// What is to happen, with how many more events like that have to come before.
    at: Vec<(At, u32)>,
}

/// The way of a signal to the driver.
pub(super) type Way = Box<dyn Fn(Arrival) + Send>;

impl Witnessed {
    /// Returns the files that are not what they were.
    pub(super) fn changed(&self) -> impl Iterator<Item = &str> {
        let changed = self.files.iter().filter(|(path, text)| self.before.get(*path) != Some(text));
        let gone = self.before.keys().filter(|path| !self.files.contains_key(*path));
        changed.map(|(path, _)| path.as_str()).chain(gone.map(String::as_str))
    }
}

impl Notes {
    pub(super) fn new(at: &[At]) -> Self {
        let at = at.iter().map(|at| (at.clone(), at.nth.saturating_sub(1))).collect();
        Self(Arc::new(Mutex::new(Inner { at, ..Inner::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the events and the requests.
    pub(super) fn take(&self) -> (Vec<Value>, Vec<Request>) {
        let mut inner = self.lock();
        (std::mem::take(&mut inner.events), std::mem::take(&mut inner.requests))
    }
}

/// Sees the events, and makes happen what is to happen at them.
pub(super) struct Prompter {
    pub(super) notes: Notes,
    pub(super) way: Way,
}

impl Output for Prompter {
    fn event(&mut self, event: &PublicEvent) -> Result<(), Gone> {
        let event = serde_json::to_value(event).unwrap_or_default();
        let mut inner = self.notes.lock();
        let mut due = Vec::new();
        inner.at.retain_mut(|(at, before)| {
            let fits = at.event.fits(&event);
            if fits && *before == 0 {
                due.push(at.happening.clone());
                return false;
            }
            *before -= u32::from(fits);
            true
        });
        for happening in due {
            match happening {
                Happening::Steer(text) => {
                    inner
                        .steering
                        .push(UserMessage { origin: Origin::Steering, text: text.into() });
                }
                Happening::FollowUp(text) => inner.follow_ups.push_back(text.into()),
                Happening::Signal(name) => {
                    (self.way)(Arrival::Event(Event::Interrupt { signal: name.signal() }));
                }
            }
        }
        inner.events.push(event);
        Ok(())
    }

    fn result(&mut self, _: &RunResult) -> Result<(), Gone> {
        Ok(())
    }

    fn finish(self: Box<Self>, _: Patience) -> Result<(), Lost> {
        Ok(())
    }
}

/// Hands out the messages that were to arrive meanwhile.
pub(super) struct Letters(pub(super) Notes);

impl Mailbox for Letters {
    fn messages(&mut self) -> Vec<UserMessage> {
        std::mem::take(&mut self.0.lock().steering)
    }

    fn follow_up(&mut self) -> Option<Arc<str>> {
        self.0.lock().follow_ups.pop_front()
    }
}

/// Notes what the model is asked, and passes it on.
pub(super) struct Listener {
    pub(super) notes: Notes,
    pub(super) model: Box<dyn Model>,
}

impl Model for Listener {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let mut inner = self.notes.lock();
        let next = inner.next;
        let fresh = ask.entries.iter().filter(|entry| entry.id.0 >= next);
        let mut new: Vec<String> = fresh.flat_map(lines).collect();
        new.extend(ask.instruction.map(|text| format!("instruction: {text}")));
        inner.next = ask.entries.last().map_or(next, |entry| next.max(entry.id.0 + 1));
        inner.requests.push(Request {
            purpose: purpose(ask.purpose).to_owned(),
            attempt: ask.attempt,
            max_output: ask.max_output.map(|tokens| tokens.0),
            entries: ask.entries.len(),
            tools: ask.tools.iter().map(|tool| tool.name.to_string()).collect(),
            system: ask.system.to_string(),
            new,
        });
        drop(inner);
        self.model.prepare(ask)
    }
}

fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Agent => "agent",
        Purpose::Compaction => "compaction",
        Purpose::Closing => "closing",
    }
}

/// Returns an entry as lines that people read.
fn lines(entry: &Entry) -> Vec<String> {
    let said = |reply: &Reply| -> Vec<String> {
        let line = |part: &Part| match part {
            Part::Text(text) => Some(format!("assistant: {text}")),
            Part::Call(call) => Some(format!("call {} {}", call.name, call.arguments.text())),
            Part::Opaque(_) => None,
        };
        reply.parts.iter().filter_map(line).collect()
    };
    match &entry.item {
        Item::User(message) => vec![format!("user: {}", message.text)],
        Item::Assistant(reply) => said(reply),
        Item::Exchange(exchange) => {
            let results = exchange.results().iter();
            let results =
                results.map(|result| format!("{}: {}", status(result.status), result.text));
            said(exchange.reply()).into_iter().chain(results).collect()
        }
    }
}

/// Returns how a call ended, as the events name it.
pub(super) fn status(status: impl serde::Serialize) -> String {
    match serde_json::to_value(status) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}
