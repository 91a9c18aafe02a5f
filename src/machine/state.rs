//! The states, and the one function that leads from each to the next.

use serde::{Deserialize, Serialize};

use super::attempt::CallAttempt;
use super::calling::{Calling, CallingStage};
use super::closing::{self, Closing};
use super::compacting::Compacting;
use super::deadline::{Deadline, DeadlineKind};
use super::done::Done;
use super::event::Event;
use super::executing::Executing;
use super::preparing::Preparing;
use super::run_context::RunContext;
use super::step::{Step, StepBuilder};
use crate::model::{ConversationItem, EffectId, RunRules, RunTime};

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
pub fn start(rules: RunRules, task: ConversationItem) -> Step {
    let mut out = StepBuilder::default();
    out.add_change(super::effect::ConversationChange::Append { item: task });
    Preparing::enter(RunContext::new(rules), out)
}

/// Returns why the machine has to act at this time; nothing when no moment that it waits for has come.
pub(super) fn due_deadline(state: &State, now: RunTime) -> Option<DeadlineKind> {
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
pub fn step(state: State, event: Event) -> Step {
    if event.effect_id().is_some() && !state.awaits(&event) {
        return StepBuilder::default().finish(state);
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
                CallAttempt::Sending { .. } => StateKind::CompactingSending,
                CallAttempt::Waiting { .. } => StateKind::CompactingWaiting,
            },
            Self::Calling(state) => match state.stage {
                CallingStage::Requesting(CallAttempt::Sending { .. }) => StateKind::CallingSending,
                CallingStage::Requesting(CallAttempt::Waiting { .. }) => StateKind::CallingWaiting,
                CallingStage::Checking { .. } => StateKind::CallingChecking,
            },
            Self::Executing(_) => StateKind::Executing,
            Self::Closing(state) => match state.stage {
                closing::ClosingStage::Preparing { .. } => StateKind::ClosingPreparing,
                closing::ClosingStage::Sending { .. } => StateKind::ClosingSending,
            },
            Self::Done(_) => StateKind::Done,
        }
    }

    /// Returns the account of the run.
    pub fn run(&self) -> &RunContext {
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
    pub fn pending_effects(&self) -> Vec<EffectId> {
        match self {
            Self::Preparing(state) => vec![state.id],
            Self::Compacting(state) => state.attempt.pending_effect().into_iter().collect(),
            Self::Calling(state) => match &state.stage {
                CallingStage::Requesting(attempt) => attempt.pending_effect().into_iter().collect(),
                CallingStage::Checking { id, .. } => vec![*id],
            },
            Self::Executing(state) => {
                state.calls.iter().filter_map(|call| call.state.pending_effect()).collect()
            }
            Self::Closing(state) => vec![state.stage.pending_effect()],
            Self::Done(_) => Vec::new(),
        }
    }

    /// Returns whether the event is about an effect that is outstanding, in a way that belongs to that effect.
    pub fn awaits(&self, event: &Event) -> bool {
        match event {
            Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::InternalError { .. } => false,
            Event::Prepared { id, .. } => self.pending_preparation() == Some(*id),
            Event::Replied { id, .. } | Event::CallFailed { id, .. } => {
                self.pending_model_call() == Some(*id)
            }
            Event::Authorized { id, .. } => match self {
                Self::Executing(state) => state.awaits_authorization(*id),
                Self::Preparing(_)
                | Self::Compacting(_)
                | Self::Calling(_)
                | Self::Closing(_)
                | Self::Done(_) => false,
            },
            Event::UsageReported { id, .. } => match self {
                Self::Executing(state) => state.budget_of(*id).is_some(),
                Self::Preparing(_)
                | Self::Compacting(_)
                | Self::Calling(_)
                | Self::Closing(_)
                | Self::Done(_) => false,
            },
            Event::ToolCompleted { id, .. } => match self {
                Self::Executing(state) => state.awaits_tool(*id),
                Self::Preparing(_)
                | Self::Compacting(_)
                | Self::Calling(_)
                | Self::Closing(_)
                | Self::Done(_) => false,
            },
            Event::Checked { id, .. } => match self {
                Self::Calling(state) => state.pending_check() == Some(*id),
                Self::Preparing(_)
                | Self::Compacting(_)
                | Self::Executing(_)
                | Self::Closing(_)
                | Self::Done(_) => false,
            },
        }
    }

    /// Returns the preparation that is outstanding.
    fn pending_preparation(&self) -> Option<EffectId> {
        match self {
            Self::Preparing(state) => Some(state.id),
            Self::Closing(state) => match state.stage {
                closing::ClosingStage::Preparing { id } => Some(id),
                closing::ClosingStage::Sending { .. } => None,
            },
            Self::Compacting(_) | Self::Calling(_) | Self::Executing(_) | Self::Done(_) => None,
        }
    }

    /// Returns the model call that is outstanding.
    fn pending_model_call(&self) -> Option<EffectId> {
        match self {
            Self::Compacting(state) => state.attempt.pending_effect(),
            Self::Calling(state) => match &state.stage {
                CallingStage::Requesting(attempt) => attempt.pending_effect(),
                CallingStage::Checking { .. } => None,
            },
            Self::Closing(state) => match state.stage {
                closing::ClosingStage::Preparing { .. } => None,
                closing::ClosingStage::Sending { id, .. } => Some(id),
            },
            Self::Preparing(_) | Self::Executing(_) | Self::Done(_) => None,
        }
    }
}
