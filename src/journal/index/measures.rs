//! The measures of a session's records: time in states, failed model calls, tool calls.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::rows::{FailureRow, StateRow, ToolRow};
use crate::journal::{ReplayedRecord, SessionHistory, StoredContent, StoredRecord};
use crate::machine::{Authorization, CallPurpose, Effect, Event, StateKind};
use crate::types::{CallId, EffectId, RunTime, ToolStatus};

/// The measures of a session. Records that were copied from another session are excluded.
#[derive(Default)]
pub(super) struct Measures {
    pub(super) failures: Vec<FailureRow>,
    pub(super) tools: Vec<ToolRow>,
    pub(super) states: BTreeMap<StateKind, StateRow>,
    /// The attempt of the newest answered model call, and its time in microseconds.
    pub(super) last_reply: Option<(u32, u64)>,
    /// The newest model call.
    pub(super) last_call: Option<CalledModel>,
    /// Whether a record was added.
    is_begun: bool,
    /// The time of the previous record.
    at: RunTime,
    /// The pending model calls.
    open_calls: HashMap<EffectId, OpenCall>,
    /// The pending tool calls.
    open_tools: HashMap<EffectId, OpenTool>,
}

/// The purpose of a model call, and the model, if the run knows several.
#[derive(Clone)]
pub(super) struct CalledModel {
    pub(super) purpose: CallPurpose,
    pub(super) model: Option<Arc<str>>,
}

/// A model call that has not ended.
struct OpenCall {
    attempt: u32,
    started_at: RunTime,
    /// The model, if the run knows several.
    model: Option<Arc<str>>,
}

/// A tool call that has not ended.
struct OpenTool {
    call: CallId,
    name: Arc<str>,
    /// The time at which it began to run; `None` while it is being authorized.
    started_at: Option<RunTime>,
}

impl Measures {
    /// Adds the next record, which `history` already contains.
    pub(super) fn add_record(
        &mut self,
        history: &SessionHistory,
        stored: &StoredRecord,
        replayed: &ReplayedRecord,
        ts: &str,
    ) {
        let is_own = history.header.ancestry.is_none_or(|ancestry| stored.seq > ancestry.seq);
        let known = (self.failures.len(), self.tools.len());
        let micros = stored.at.since(self.at).0;
        self.at = self.at.max(stored.at);
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let mut entered: Vec<StateKind> =
            is_first.then_some(replayed.fingerprint.state).into_iter().collect();
        match &stored.content {
            StoredContent::Event(event) => {
                self.add_event(history, stored, event, ts);
                entered.extend(history.output.transitions.iter().map(|step| step.to));
            }
            StoredContent::Resumed(resumed) => {
                self.open_calls.clear();
                for found in &*resumed.resumption.recovered {
                    let open = self.open_tools.iter();
                    let id = open.filter(|(_, tool)| tool.call == found.result.call);
                    if let Some(id) = id.map(|(id, _)| *id).next() {
                        self.end_tool(id, stored, found.result.status, ts);
                    }
                }
                self.open_tools.clear();
                let state = history.machine.state.kind();
                entered.extend((state != replayed.fingerprint.state).then_some(state));
            }
            StoredContent::Header(_)
            | StoredContent::Checkpoint(_)
            | StoredContent::Ended(_)
            | StoredContent::Partial(_)
            | StoredContent::Other => {}
        }
        if replayed.is_advanced {
            self.add_effects(history, stored, ts);
        }
        if is_own {
            self.states.entry(replayed.fingerprint.state).or_default().micros += micros;
            entered.into_iter().for_each(|state| self.states.entry(state).or_default().visits += 1);
        } else {
            self.failures.truncate(known.0);
            self.tools.truncate(known.1);
        }
    }

    fn add_event(
        &mut self,
        history: &SessionHistory,
        stored: &StoredRecord,
        event: &Event,
        ts: &str,
    ) {
        match event {
            Event::Replied { id, .. } => {
                let open = self.open_calls.remove(id);
                self.last_reply =
                    open.map(|open| (open.attempt, stored.at.since(open.started_at).0));
            }
            Event::CallFailed { id, fault } => {
                let open = self.open_calls.remove(id);
                let model = open.as_ref().and_then(|open| open.model.clone());
                self.failures.push(FailureRow {
                    seq: stored.seq,
                    ts: ts.to_owned(),
                    model: model.unwrap_or_else(|| Arc::clone(&history.setup.model)).to_string(),
                    kind: fault.kind,
                    attempt: open.map_or(1, |open| open.attempt),
                });
            }
            Event::Authorized { id, authorization } => match authorization {
                Authorization::Rejected { result } => self.end_tool(*id, stored, result.status, ts),
                Authorization::Abort => self.end_tool(*id, stored, ToolStatus::Denied, ts),
                Authorization::Approved { .. } => {}
            },
            Event::ToolCompleted { id, result } => self.end_tool(*id, stored, result.status, ts),
            _ => {}
        }
    }

    fn add_effects(&mut self, history: &SessionHistory, stored: &StoredRecord, ts: &str) {
        for effect in &history.output.effects {
            match effect {
                Effect::CallModel { id, attempt, purpose, .. } => {
                    let model = history.machine.state.run().called_model(*purpose).cloned();
                    self.last_call = Some(CalledModel { purpose: *purpose, model: model.clone() });
                    let open = OpenCall { attempt: *attempt, started_at: stored.at, model };
                    self.open_calls.insert(*id, open);
                }
                Effect::Authorize { id, call } => {
                    let (name, call) = (Arc::clone(&call.name), call.id.clone());
                    self.open_tools.insert(*id, OpenTool { call, name, started_at: None });
                }
                Effect::RunTool { id, call, .. } => {
                    // The authorization of the call has another id, and is over.
                    self.open_tools.retain(|_, tool| tool.call != call.id);
                    let (name, call) = (Arc::clone(&call.name), call.id.clone());
                    let started_at = Some(stored.at);
                    self.open_tools.insert(*id, OpenTool { call, name, started_at });
                }
                Effect::Cancel { id } => {
                    self.open_calls.remove(id);
                    self.end_tool(*id, stored, ToolStatus::Interrupted, ts);
                }
                Effect::Prepare { .. } | Effect::CheckAnswer { .. } | Effect::End => {}
            }
        }
    }

    fn end_tool(&mut self, id: EffectId, stored: &StoredRecord, status: ToolStatus, ts: &str) {
        let Some(tool) = self.open_tools.remove(&id) else { return };
        self.tools.push(ToolRow {
            seq: stored.seq,
            ts: ts.to_owned(),
            name: tool.name,
            status,
            micros: tool.started_at.map(|from| stored.at.since(from).0),
        });
    }
}
