//! The state and the conversation that a list of events folds to.
//!
//! A live run, a resume, a replay and a test all go through [`Fold::accept`]; there is no second way to get from an
//! event to a state.

use super::conversation::{Conversation, Entry};
use super::deadline::Deadline;
use super::effect::{Effect, Note};
use super::event::{Event, EventKind};
use super::instructions;
use super::next::Next;
use super::resume::{self, Resumption};
use super::state::{self, State, StateKind};
use crate::model::{Item, Rules, Time};

/// The state and the conversation that the events so far fold to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    /// Control: where the run stands.
    pub state: State,
    /// Content: what the model sees.
    pub conversation: Conversation,
}

/// What follows from an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// What is to be done, in this order.
    pub effects: Vec<Effect>,
    /// What is to be shown.
    pub notes: Vec<Note>,
    /// The states that were left and entered.
    pub moves: Vec<Move>,
}

/// A change from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The state that was left.
    pub from: StateKind,
    /// What led out of it.
    pub event: EventKind,
    /// The state that was entered.
    pub to: StateKind,
}

impl Fold {
    /// Begins a run with a conversation that may have a history already.
    pub fn start(rules: Rules, mut conversation: Conversation, task: Item) -> (Self, Outcomes) {
        let Next { state, changes, effects, notes } = state::start(rules, task);
        for change in changes {
            conversation.apply(change);
        }
        (Self { state, conversation }, Outcomes { effects, notes, moves: Vec::new() })
    }

    /// Goes on at this time from where the fold stands.
    pub fn resume(self, at: Time, resumption: Resumption) -> (Self, Outcomes) {
        let Self { state, mut conversation } = self;
        let Next { state, changes, effects, notes } = resume::resume(state, at, resumption);
        for change in changes {
            conversation.apply(change);
        }
        (Self { state, conversation }, Outcomes { effects, notes, moves: Vec::new() })
    }

    /// Takes an event in that happened at this time: first the deadlines that have passed by then, then the event.
    pub fn accept(self, at: Time, event: Event) -> (Self, Outcomes) {
        let mut fold = self;
        let mut outcomes = Outcomes::default();
        while fold.state.run().now < at || fold.deadline().is_some_and(|due| due.at <= at) {
            if matches!(fold.state, State::Done(_)) {
                break;
            }
            fold = fold.step(Event::Tick { now: at }, &mut outcomes);
        }
        if !matches!(event, Event::Tick { .. }) {
            fold = fold.step(event, &mut outcomes);
        }
        (fold, outcomes)
    }

    /// Returns when the fold wants to be told the time although nothing happened.
    pub fn deadline(&self) -> Option<Deadline> {
        state::deadline(&self.state)
    }

    /// Returns the entries that the model is asked to sum up; none unless it is.
    pub fn to_sum_up(&self) -> &[Entry] {
        match &self.state {
            State::Compacting(state) => self.conversation.older(state.keep()),
            State::Preparing(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Closing(_)
            | State::Done(_) => &[],
        }
    }

    /// Returns what a model is told that sums up: what to write under which headings, and what is known for certain.
    pub fn how_to_sum_up(&self) -> String {
        let records = match &self.state {
            State::Compacting(state) => self.conversation.records(state.keep()),
            State::Preparing(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Closing(_)
            | State::Done(_) => String::new(),
        };
        instructions::sum_up(&records)
    }

    fn step(self, event: Event, outcomes: &mut Outcomes) -> Self {
        let Self { state, mut conversation } = self;
        let (from, kind) = (state.kind(), event.kind());
        if let Event::Replied { reply, .. } = &event
            && from == StateKind::CallingSending
            && state.awaits(&event)
        {
            conversation.count(&reply.usage);
        }
        let Next { state, changes, effects, notes } = state::step(state, event);
        for change in changes {
            conversation.apply(change);
        }
        outcomes.effects.extend(effects);
        outcomes.notes.extend(notes);
        let to = state.kind();
        if from != to {
            outcomes.moves.push(Move { from, event: kind, to });
        }
        Self { state, conversation }
    }
}
