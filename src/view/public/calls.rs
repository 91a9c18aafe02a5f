//! The model call that is under way, as far as it was told.

use super::{ApiCallEnd, CallOutcome};
use crate::machine::{Effect, Event, Outcomes, Purpose};
use crate::model::{EffectId, Micros, Reply, Span, Time, Usage};

/// A model call that is under way; there is never more than one.
pub(super) struct OpenCall {
    pub(super) id: EffectId,
    pub(super) purpose: Purpose,
    attempt: u32,
    begun: Time,
    first_byte: Option<Span>,
}

impl OpenCall {
    pub(super) fn new(id: EffectId, purpose: Purpose, attempt: u32, begun: Time) -> Self {
        Self { id, purpose, attempt, begun, first_byte: None }
    }

    /// Notes that something of the reply arrived.
    pub(super) fn heard(&mut self, at: Time) {
        self.first_byte.get_or_insert(at.since(self.begun));
    }

    /// Returns how an event ends the call; nothing when it doesn't.
    pub(super) fn outcome(&self, event: &Event, outcomes: &Outcomes) -> Option<CallOutcome> {
        match event {
            Event::Replied { id, reply, .. } if *id == self.id => Some(replied(reply)),
            Event::Failed { id, fault } if *id == self.id => {
                Some(CallOutcome::Failed { fault: fault.kind, message: fault.message.clone() })
            }
            _ if outcomes.effects.contains(&Effect::Cancel { id: self.id }) => {
                Some(CallOutcome::Cancelled)
            }
            _ => None,
        }
    }

    /// Returns the end of the call.
    pub(super) fn end(
        self,
        at: Time,
        outcome: CallOutcome,
        usage: Usage,
        cost: Option<Micros>,
    ) -> ApiCallEnd {
        ApiCallEnd {
            call: self.id,
            purpose: self.purpose,
            attempt: self.attempt,
            outcome,
            duration: at.since(self.begun),
            first_byte: self.first_byte,
            usage,
            cost,
        }
    }
}

fn replied(reply: &Reply) -> CallOutcome {
    CallOutcome::Replied {
        finish: reply.finish.clone(),
        text: reply.text(),
        tool_calls: u32::try_from(reply.calls().count()).unwrap_or(u32::MAX),
        model: reply.model.clone(),
    }
}
