//! The open model call.

use super::{ApiCallEnd, CallOutcome};
use crate::machine::{CallPurpose, Effect, Event, MachineOutput};
use crate::model::{EffectId, MicroUsd, Reply, RunTime, TimeSpan, Usage};

/// A running model call; there is never more than one.
pub(super) struct OpenModelCall {
    pub(super) id: EffectId,
    pub(super) purpose: CallPurpose,
    attempt: u32,
    started_at: RunTime,
    first_byte: Option<TimeSpan>,
}

impl OpenModelCall {
    pub(super) fn new(id: EffectId, purpose: CallPurpose, attempt: u32, started: RunTime) -> Self {
        Self { id, purpose, attempt, started_at: started, first_byte: None }
    }

    /// Notes that a part of the reply arrived.
    pub(super) fn note_first_byte(&mut self, at: RunTime) {
        self.first_byte.get_or_insert(at.since(self.started_at));
    }

    /// Returns how an event ends the call; `None` if it doesn't.
    pub(super) fn outcome(&self, event: &Event, output: &MachineOutput) -> Option<CallOutcome> {
        match event {
            Event::Replied { id, reply, .. } if *id == self.id => Some(replied_outcome(reply)),
            Event::CallFailed { id, fault } if *id == self.id => {
                Some(CallOutcome::Failed { fault: fault.kind, message: fault.message.clone() })
            }
            _ if output.effects.contains(&Effect::Cancel { id: self.id }) => {
                Some(CallOutcome::Cancelled)
            }
            _ => None,
        }
    }

    /// Returns the end of the call.
    pub(super) fn end(
        self,
        at: RunTime,
        outcome: CallOutcome,
        usage: Usage,
        cost: Option<MicroUsd>,
    ) -> ApiCallEnd {
        ApiCallEnd {
            call: self.id,
            purpose: self.purpose,
            attempt: self.attempt,
            outcome,
            duration: at.since(self.started_at),
            first_byte: self.first_byte,
            usage,
            cost,
        }
    }
}

fn replied_outcome(reply: &Reply) -> CallOutcome {
    CallOutcome::Replied {
        finish: reply.finish.clone(),
        text: reply.text(),
        tool_calls: u32::try_from(reply.calls().count()).unwrap_or(u32::MAX),
        model: reply.model.clone(),
    }
}
