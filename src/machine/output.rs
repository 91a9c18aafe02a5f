//! The result of a step.

use crate::machine::effect::{ConversationChange, Effect, MachineNote};
use crate::machine::state::State;
use crate::types::{ConversationItem, EffectId};

/// The result of a step: the next state, and the output for the event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The next state.
    pub state: State,
    /// The changes of the conversation.
    pub changes: Vec<ConversationChange>,
    /// The effects to perform, in this order.
    pub effects: Vec<Effect>,
    /// The notes to show.
    pub notes: Vec<MachineNote>,
}

/// A step under construction.
#[derive(Debug, Default)]
pub(crate) struct StepBuilder {
    changes: Vec<ConversationChange>,
    effects: Vec<Effect>,
    notes: Vec<MachineNote>,
}

impl StepBuilder {
    /// Adds an item to the conversation.
    pub(crate) fn append(&mut self, item: ConversationItem) {
        self.add_change(ConversationChange::Append { item });
    }

    /// Cancels an effect.
    pub(crate) fn cancel(&mut self, id: EffectId) {
        self.add_effect(Effect::Cancel { id });
    }

    pub(crate) fn add_change(&mut self, change: ConversationChange) {
        self.changes.push(change);
    }

    pub(crate) fn add_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn add_note(&mut self, note: MachineNote) {
        self.notes.push(note);
    }

    /// Completes the step with the next state.
    pub(crate) fn finish(self, state: State) -> Step {
        Step { state, changes: self.changes, effects: self.effects, notes: self.notes }
    }
}
