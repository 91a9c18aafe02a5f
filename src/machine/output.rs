//! What a step results in.

use crate::machine::effect::{ConversationChange, Effect, MachineNote};
use crate::machine::state::State;

/// The result of a step: the state after it, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The state after the step.
    pub state: State,
    /// How the conversation changes.
    pub changes: Vec<ConversationChange>,
    /// What is to be done, in this order.
    pub effects: Vec<Effect>,
    /// What is to be shown.
    pub notes: Vec<MachineNote>,
}

/// What a step has gathered so far, apart from its state.
#[derive(Debug, Default)]
pub(crate) struct StepBuilder {
    changes: Vec<ConversationChange>,
    effects: Vec<Effect>,
    notes: Vec<MachineNote>,
}

impl StepBuilder {
    pub(crate) fn add_change(&mut self, change: ConversationChange) {
        self.changes.push(change);
    }

    pub(crate) fn add_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn add_note(&mut self, note: MachineNote) {
        self.notes.push(note);
    }

    /// Completes the step with the state it leads to.
    pub(crate) fn finish(self, state: State) -> Step {
        Step { state, changes: self.changes, effects: self.effects, notes: self.notes }
    }
}
