//! Done: the run is over. Nothing leads out of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::event::Event;
use super::run_context::RunContext;
use super::state::State;
use super::step::{Step, StepBuilder};
use super::stop_reason::StopReason;

/// The run is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Done {
    /// The account of the run.
    pub run: RunContext,
    /// How it ended.
    pub outcome: RunOutcome,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Why.
    pub reason: StopReason,
    /// The final text; none when the model had no last word.
    pub output: Option<Arc<str>>,
    /// What went wrong, when the run failed.
    pub error: Option<Arc<str>>,
}

impl Done {
    /// Ends with what the model said last.
    pub(super) fn end_with_output(
        run: RunContext,
        out: StepBuilder,
        reason: StopReason,
        output: Option<Arc<str>>,
    ) -> Step {
        Self::enter(run, out, RunOutcome { reason, output, error: None })
    }

    /// Ends without a last word.
    pub(super) fn end(run: RunContext, out: StepBuilder, reason: StopReason) -> Step {
        Self::enter(run, out, RunOutcome { reason, output: None, error: None })
    }

    /// Ends because something went wrong.
    pub(super) fn fail(
        run: RunContext,
        out: StepBuilder,
        reason: StopReason,
        error: Arc<str>,
    ) -> Step {
        Self::enter(run, out, RunOutcome { reason, output: None, error: Some(error) })
    }

    fn enter(run: RunContext, mut out: StepBuilder, outcome: RunOutcome) -> Step {
        out.add_effect(Effect::End);
        out.finish(State::Done(Self { run, outcome }))
    }

    pub(super) fn step(self, event: &Event) -> Step {
        match event {
            Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::InternalError { .. }
            | Event::Prepared { .. }
            | Event::Replied { .. }
            | Event::CallFailed { .. }
            | Event::Authorized { .. }
            | Event::ToolCompleted { .. }
            | Event::UsageReported { .. }
            | Event::Checked { .. } => StepBuilder::default().finish(State::Done(self)),
        }
    }
}
