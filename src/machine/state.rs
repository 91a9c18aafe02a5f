//! The states, and the one function that leads from each to the next.

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::calling::{Calling, Stage};
use super::closing::{self, Closing};
use super::compacting::Compacting;
use super::deadline::{Deadline, Why};
use super::done::Done;
use super::event::Event;
use super::executing::Executing;
use super::next::{Next, Out};
use super::preparing::Preparing;
use super::run::Run;
use crate::model::{EffectId, Item, Rules, Time};

/// Where a run stands. Each variant carries exactly what is valid in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The next model call is being prepared; the safety nets are looked at.
    Preparing(Preparing),
    /// The model sums up the older part of the conversation.
    Compacting(Compacting),
    /// The model is asked, or its final answer is checked.
    Calling(Calling),
    /// The tool calls of a reply run.
    Executing(Executing),
    /// A watchdog asked for the last word.
    Closing(Closing),
    /// The run is over.
    Done(Done),
}

/// The kinds of states, as the statechart names them; those within another have a dot in their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StateKind {
    /// [`State::Preparing`]
    Preparing,
    /// [`State::Compacting`] with a request under way.
    CompactingSending,
    /// [`State::Compacting`] before a retry.
    CompactingWaiting,
    /// [`State::Calling`] with a request under way.
    CallingSending,
    /// [`State::Calling`] before a retry.
    CallingWaiting,
    /// [`State::Calling`] with a final answer that is being checked.
    CallingChecking,
    /// [`State::Executing`]
    Executing,
    /// [`State::Closing`] before its call.
    ClosingPreparing,
    /// [`State::Closing`] with its call under way.
    ClosingSending,
    /// [`State::Done`]
    Done,
}

impl StateKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Preparing,
        Self::CompactingSending,
        Self::CompactingWaiting,
        Self::CallingSending,
        Self::CallingWaiting,
        Self::CallingChecking,
        Self::Executing,
        Self::ClosingPreparing,
        Self::ClosingSending,
        Self::Done,
    ];

    /// Returns the name that the statechart uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preparing => "Preparing",
            Self::CompactingSending => "Compacting.Sending",
            Self::CompactingWaiting => "Compacting.Waiting",
            Self::CallingSending => "Calling.Sending",
            Self::CallingWaiting => "Calling.Waiting",
            Self::CallingChecking => "Calling.Checking",
            Self::Executing => "Executing",
            Self::ClosingPreparing => "Closing.Preparing",
            Self::ClosingSending => "Closing.Sending",
            Self::Done => "Done",
        }
    }
}

/// Begins a run: its task stands in the conversation, and the first call is prepared.
pub fn start(rules: Rules, task: Item) -> Next {
    let mut out = Out::default();
    out.change(super::effect::Change::Append { item: task });
    Preparing::enter(Run::new(rules), out)
}

/// Returns why the machine has to act at this time; nothing when no moment that it waits for has come.
pub(super) fn due(state: &State, now: Time) -> Option<Why> {
    match state {
        State::Preparing(state) => state.deadlines().due(now),
        State::Compacting(state) => state.deadlines().due(now),
        State::Calling(state) => state.deadlines().due(now),
        State::Executing(state) => state.deadlines().due(now),
        State::Closing(state) => state.deadlines().due(now),
        State::Done(_) => None,
    }
}

/// Leads from a state to the next one. Total: every event has its answer in every state.
///
/// What is about an effect that is not outstanding changes nothing, whatever it says.
pub fn step(state: State, event: Event) -> Next {
    if event.about().is_some() && !state.awaits(&event) {
        return Out::default().to(state);
    }
    match state {
        State::Preparing(state) => state.step(event),
        State::Compacting(state) => state.step(event),
        State::Calling(state) => state.step(event),
        State::Executing(state) => state.step(event),
        State::Closing(state) => state.step(event),
        State::Done(state) => state.step(&event),
    }
}

/// Returns the next moment at which time alone changes the state; none once the run is over.
pub fn deadline(state: &State) -> Option<Deadline> {
    match state {
        State::Preparing(state) => state.deadlines().next(),
        State::Compacting(state) => state.deadlines().next(),
        State::Calling(state) => state.deadlines().next(),
        State::Executing(state) => state.deadlines().next(),
        State::Closing(state) => state.deadlines().next(),
        State::Done(_) => None,
    }
}

impl State {
    /// Returns the kind of the state.
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Preparing(_) => StateKind::Preparing,
            Self::Compacting(state) => match state.attempt {
                Attempt::Sending { .. } => StateKind::CompactingSending,
                Attempt::Waiting { .. } => StateKind::CompactingWaiting,
            },
            Self::Calling(state) => match state.stage {
                Stage::Asking(Attempt::Sending { .. }) => StateKind::CallingSending,
                Stage::Asking(Attempt::Waiting { .. }) => StateKind::CallingWaiting,
                Stage::Checking { .. } => StateKind::CallingChecking,
            },
            Self::Executing(_) => StateKind::Executing,
            Self::Closing(state) => match state.stage {
                closing::Stage::Preparing { .. } => StateKind::ClosingPreparing,
                closing::Stage::Sending { .. } => StateKind::ClosingSending,
            },
            Self::Done(_) => StateKind::Done,
        }
    }

    /// Returns the account of the run.
    pub fn run(&self) -> &Run {
        match self {
            Self::Preparing(state) => &state.run,
            Self::Compacting(state) => &state.run,
            Self::Calling(state) => &state.run,
            Self::Executing(state) => &state.run,
            Self::Closing(state) => &state.run,
            Self::Done(state) => &state.run,
        }
    }

    /// Returns the ids of the effects that are outstanding.
    pub fn outstanding(&self) -> Vec<EffectId> {
        match self {
            Self::Preparing(state) => vec![state.id],
            Self::Compacting(state) => state.attempt.awaited().into_iter().collect(),
            Self::Calling(state) => match &state.stage {
                Stage::Asking(attempt) => attempt.awaited().into_iter().collect(),
                Stage::Checking { id, .. } => vec![*id],
            },
            Self::Executing(state) => {
                state.calls.iter().filter_map(|call| call.slot.awaited()).collect()
            }
            Self::Closing(state) => vec![state.stage.awaited()],
            Self::Done(_) => Vec::new(),
        }
    }

    /// Returns whether the event is about an effect that is outstanding, in a way that belongs to that effect.
    pub fn awaits(&self, event: &Event) -> bool {
        match event {
            Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::Defect { .. } => false,
            Event::Prepared { id, .. } => self.prepares() == Some(*id),
            Event::Replied { id, .. } | Event::Failed { id, .. } => self.asks() == Some(*id),
            Event::Vetted { id, .. } => match self {
                Self::Executing(state) => state.vets(*id),
                Self::Preparing(_)
                | Self::Compacting(_)
                | Self::Calling(_)
                | Self::Closing(_)
                | Self::Done(_) => false,
            },
            Event::Charged { id, .. } => match self {
                Self::Executing(state) => state.allowance(*id).is_some(),
                Self::Preparing(_)
                | Self::Compacting(_)
                | Self::Calling(_)
                | Self::Closing(_)
                | Self::Done(_) => false,
            },
            Event::Settled { id, .. } => match self {
                Self::Executing(state) => state.runs(*id),
                Self::Preparing(_)
                | Self::Compacting(_)
                | Self::Calling(_)
                | Self::Closing(_)
                | Self::Done(_) => false,
            },
            Event::Checked { id, .. } => match self {
                Self::Calling(state) => state.checks() == Some(*id),
                Self::Preparing(_)
                | Self::Compacting(_)
                | Self::Executing(_)
                | Self::Closing(_)
                | Self::Done(_) => false,
            },
        }
    }

    /// Returns the preparation that is outstanding.
    fn prepares(&self) -> Option<EffectId> {
        match self {
            Self::Preparing(state) => Some(state.id),
            Self::Closing(state) => match state.stage {
                closing::Stage::Preparing { id } => Some(id),
                closing::Stage::Sending { .. } => None,
            },
            Self::Compacting(_) | Self::Calling(_) | Self::Executing(_) | Self::Done(_) => None,
        }
    }

    /// Returns the model call that is outstanding.
    fn asks(&self) -> Option<EffectId> {
        match self {
            Self::Compacting(state) => state.attempt.awaited(),
            Self::Calling(state) => match &state.stage {
                Stage::Asking(attempt) => attempt.awaited(),
                Stage::Checking { .. } => None,
            },
            Self::Closing(state) => match state.stage {
                closing::Stage::Preparing { .. } => None,
                closing::Stage::Sending { id, .. } => Some(id),
            },
            Self::Preparing(_) | Self::Executing(_) | Self::Done(_) => None,
        }
    }
}
