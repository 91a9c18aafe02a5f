//! Done: the run is over. Nothing leads out of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::machine::effect::Effect;
use crate::machine::output::{Step, StepBuilder};
use crate::machine::run_context::RunContext;
use crate::machine::state::State;
use crate::machine::stop_reason::StopReason;

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
    pub(crate) fn end_with_output(
        run: RunContext,
        out: StepBuilder,
        reason: StopReason,
        output: Option<Arc<str>>,
    ) -> Step {
        Self::enter(run, out, RunOutcome { reason, output, error: None })
    }

    /// Ends without a last word.
    pub(crate) fn end(run: RunContext, out: StepBuilder, reason: StopReason) -> Step {
        Self::enter(run, out, RunOutcome { reason, output: None, error: None })
    }

    /// Ends because something went wrong.
    pub(crate) fn fail(
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
}
