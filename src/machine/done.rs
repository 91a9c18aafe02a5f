//! Done: the run is over. Nothing leads out of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::event::Event;
use super::next::{Next, Out};
use super::run::Run;
use super::state::State;
use super::stop::StopReason;

/// The run is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Done {
    /// The account of the run.
    pub run: Run,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outcome {
    /// Why.
    pub reason: StopReason,
    /// The final text; none when the model had no last word.
    pub output: Option<Arc<str>>,
    /// What went wrong, when the run failed.
    pub error: Option<Arc<str>>,
}

impl Done {
    /// Ends with what the model said last.
    pub(super) fn answer(run: Run, out: Out, reason: StopReason, output: Option<Arc<str>>) -> Next {
        Self::enter(run, out, Outcome { reason, output, error: None })
    }

    /// Ends without a last word.
    pub(super) fn end(run: Run, out: Out, reason: StopReason) -> Next {
        Self::enter(run, out, Outcome { reason, output: None, error: None })
    }

    /// Ends because something went wrong.
    pub(super) fn fail(run: Run, out: Out, reason: StopReason, error: Arc<str>) -> Next {
        Self::enter(run, out, Outcome { reason, output: None, error: Some(error) })
    }

    fn enter(run: Run, mut out: Out, outcome: Outcome) -> Next {
        out.effect(Effect::End);
        out.to(State::Done(Self { run, outcome }))
    }

    pub(super) fn step(self, event: &Event) -> Next {
        match event {
            Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::Defect { .. }
            | Event::Prepared { .. }
            | Event::Replied { .. }
            | Event::Failed { .. }
            | Event::Vetted { .. }
            | Event::Settled { .. }
            | Event::Charged { .. }
            | Event::Checked { .. } => Out::default().to(State::Done(self)),
        }
    }
}
