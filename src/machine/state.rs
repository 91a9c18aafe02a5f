//! The states of a run, and the pending effects of each.

use serde::{Deserialize, Serialize};

use super::effect::EffectKind;
use super::event::Event;
use super::model_calls::attempt::CallAttempt;
use super::output::StepBuilder;
use super::run_context::RunContext;
use super::states::calling::{Calling, CallingStage};
use super::states::closing::{Closing, ClosingStage};
use super::states::compacting::Compacting;
use super::states::done::{Done, RunOutcome};
use super::states::executing::{Executing, TrackedCall};
use super::states::preparing::Preparing;
use crate::types::{EffectId, word_enum};

/// The state of a run. Each variant contains exactly the data that is valid in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The next model call is being prepared, and the limits are checked.
    Preparing(Preparing),
    /// The model summarizes the older part of the conversation.
    Compacting(Compacting),
    /// The model is called, or its final answer is checked.
    Calling(Calling),
    /// The tool calls of a reply run.
    Executing(Executing),
    /// A limit was reached, and the model is asked for a final summary.
    Closing(Closing),
    /// The run is over.
    Done(Done),
}

word_enum! {
    /// The kinds of states, as the statechart names them. A nested state has a dot in its name.
    pub enum StateKind {
        /// [`State::Preparing`]
        Preparing = "Preparing",
        /// [`State::Compacting`] while a request is sent.
        CompactingSending = "Compacting.Sending",
        /// [`State::Compacting`] before a retry.
        CompactingWaiting = "Compacting.Waiting",
        /// [`State::Calling`] while a request is sent.
        CallingSending = "Calling.Sending",
        /// [`State::Calling`] before a retry.
        CallingWaiting = "Calling.Waiting",
        /// [`State::Calling`] while a final answer is checked.
        CallingChecking = "Calling.Checking",
        /// [`State::Executing`]
        Executing = "Executing",
        /// [`State::Closing`] before its call.
        ClosingPreparing = "Closing.Preparing",
        /// [`State::Closing`] during its call.
        ClosingSending = "Closing.Sending",
        /// [`State::Done`]
        Done = "Done",
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
                ClosingStage::Preparing { .. } => StateKind::ClosingPreparing,
                ClosingStage::Sending { .. } => StateKind::ClosingSending,
            },
            Self::Done(_) => StateKind::Done,
        }
    }

    /// Returns the outcome of the run, if it has ended.
    pub fn outcome(&self) -> Option<&RunOutcome> {
        if let Self::Done(done) = self { Some(&done.outcome) } else { None }
    }

    /// Returns the extended state, which all states share.
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

    pub(crate) fn run_mut(&mut self) -> &mut RunContext {
        match self {
            Self::Preparing(state) => &mut state.run,
            Self::Compacting(state) => &mut state.run,
            Self::Calling(state) => &mut state.run,
            Self::Executing(state) => &mut state.run,
            Self::Closing(state) => &mut state.run,
            Self::Done(state) => &mut state.run,
        }
    }

    /// Returns the pending effects, whose completion the state awaits.
    fn pending(&self) -> impl Iterator<Item = (EffectId, EffectKind)> + '_ {
        let no_calls: &[TrackedCall] = &[];
        let (effect, calls) = match self {
            Self::Preparing(state) => (Some((state.id, EffectKind::Prepare)), no_calls),
            Self::Compacting(state) => (state.attempt.pending_call(), no_calls),
            Self::Calling(state) => (state.stage.pending(), no_calls),
            Self::Executing(state) => (None, state.calls.as_slice()),
            Self::Closing(state) => (Some(state.stage.pending()), no_calls),
            Self::Done(_) => (None, no_calls),
        };
        let commands = self.run().commands.iter();
        let commands = commands.map(|command| (command.id, EffectKind::RunCommand));
        let calls = calls.iter().filter_map(|call| call.state.pending());
        effect.into_iter().chain(calls).chain(commands)
    }

    /// Returns the ids of the pending effects.
    pub fn pending_effects(&self) -> Vec<EffectId> {
        self.pending().map(|(id, _)| id).collect()
    }

    /// Returns the pending effects that are sub-agents.
    pub fn pending_subagents(&self) -> Vec<EffectId> {
        let subagents = self.pending().filter(|(_, kind)| *kind == EffectKind::RunSubagent);
        subagents.map(|(id, _)| id).collect()
    }

    /// Returns the tool call that a pending effect belongs to.
    pub fn call_of(&self, effect: EffectId) -> Option<&TrackedCall> {
        let Self::Executing(state) = self else { return None };
        state.calls.iter().find(|call| call.state.pending_effect() == Some(effect))
    }

    /// Returns whether the event belongs to a pending effect, and is of a kind that this effect can cause.
    pub fn awaits(&self, event: &Event) -> bool {
        let kind = event.kind();
        event.effect_id().is_some_and(|id| {
            self.pending().any(|(pending, effect)| pending == id && kind.is_caused_by(effect))
        })
    }

    /// Cancels the pending effects, and completes the conversation.
    pub(crate) fn cancel(self) -> (Box<RunContext>, StepBuilder) {
        match self {
            Self::Preparing(state) => state.cancel(),
            Self::Compacting(state) => state.cancel(),
            Self::Calling(state) => state.cancel(),
            Self::Executing(state) => state.cancel(),
            Self::Closing(state) => state.cancel(),
            Self::Done(state) => (state.run, StepBuilder::default()),
        }
    }
}
