//! What a step results in.

use super::effect::{Change, Effect, Note};
use super::state::State;

/// The result of a step: the state after it, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Next {
    /// The state after the step.
    pub state: State,
    /// How the conversation changes.
    pub changes: Vec<Change>,
    /// What is to be done, in this order.
    pub effects: Vec<Effect>,
    /// What is to be shown.
    pub notes: Vec<Note>,
}

/// What a step has gathered so far, apart from its state.
#[derive(Debug, Default)]
pub(super) struct Out {
    changes: Vec<Change>,
    effects: Vec<Effect>,
    notes: Vec<Note>,
}

impl Out {
    pub(super) fn change(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// Completes the step with the state it leads to.
    pub(super) fn to(self, state: State) -> Next {
        Next { state, changes: self.changes, effects: self.effects, notes: self.notes }
    }
}
