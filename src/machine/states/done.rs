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
    /// The shared context.
    pub run: Box<RunContext>,
    /// The outcome.
    pub outcome: RunOutcome,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunOutcome {
    /// The stop reason.
    pub reason: StopReason,
    /// The final text, if the model wrote one.
    pub output: Option<Arc<str>>,
    /// The error, if the run failed.
    pub error: Option<Arc<str>>,
}

impl Done {
    /// Ends the run with the model's last text.
    pub(crate) fn end_with_output(
        run: Box<RunContext>,
        out: StepBuilder,
        reason: StopReason,
        output: Option<Arc<str>>,
    ) -> Step {
        Self::enter(run, out, RunOutcome { reason, output, error: None })
    }

    /// Ends the run without a text.
    pub(crate) fn end(run: Box<RunContext>, out: StepBuilder, reason: StopReason) -> Step {
        Self::enter(run, out, RunOutcome { reason, output: None, error: None })
    }

    /// Ends the run with an error.
    pub(crate) fn fail(
        run: Box<RunContext>,
        out: StepBuilder,
        reason: StopReason,
        error: Arc<str>,
    ) -> Step {
        Self::enter(run, out, RunOutcome { reason, output: None, error: Some(error) })
    }

    /// Ends the run, and cancels its background commands.
    fn enter(mut run: Box<RunContext>, mut out: StepBuilder, outcome: RunOutcome) -> Step {
        std::mem::take(&mut run.commands).iter().for_each(|command| out.cancel(command.id));
        out.add_effect(Effect::End);
        out.finish(State::Done(Self { run, outcome }))
    }
}
