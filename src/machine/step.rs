//! What a step results in.

use super::effect::{ConversationChange, Effect, MachineNote};
use super::state::State;

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
pub(super) struct StepBuilder {
    changes: Vec<ConversationChange>,
    effects: Vec<Effect>,
    notes: Vec<MachineNote>,
}

impl StepBuilder {
    pub(super) fn add_change(&mut self, change: ConversationChange) {
        self.changes.push(change);
    }

    pub(super) fn add_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn add_note(&mut self, note: MachineNote) {
        self.notes.push(note);
    }

    /// Completes the step with the state it leads to.
    pub(super) fn finish(self, state: State) -> Step {
        Step { state, changes: self.changes, effects: self.effects, notes: self.notes }
    }
}
