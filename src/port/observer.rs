//! Observers of a run: logs, streams, reports.

use thiserror::Error;

use crate::machine::{Event, Machine, MachineOutput};
use crate::port::{EffectNotice, ReplyDelta};
use crate::types::{EffectId, RunTime, Sha256Digest};

/// An observer of a run. It can't change the run.
pub trait Observer: Send {
    /// Handles an event of the run.
    ///
    /// # Errors
    ///
    /// Fails if the reader of the observer's output is gone. The run then ends.
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected>;
}

/// The reader of the output is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the reader of the output is gone")]
pub struct Disconnected;

/// An event of a run, for its observers.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The run began.
    Started {
        /// The time.
        at: RunTime,
        /// The machine at the start.
        machine: &'a Machine,
        /// The output of the machine at the start.
        output: &'a MachineOutput,
    },
    /// The machine has handled an event.
    Handled {
        /// The time.
        at: RunTime,
        /// The event.
        event: &'a Event,
        /// The machine after the event.
        machine: &'a Machine,
        /// The machine's output for the event.
        output: &'a MachineOutput,
    },
    /// A part of a reply has arrived.
    ReplyDelta {
        /// The time.
        at: RunTime,
        /// The model call.
        id: EffectId,
        /// The part.
        delta: &'a ReplyDelta,
    },
    /// A running effect has sent a notice.
    Notice {
        /// The time.
        at: RunTime,
        /// The effect.
        id: EffectId,
        /// The notice.
        notice: &'a EffectNotice,
    },
    /// The run has ended.
    Ended {
        /// The time.
        at: RunTime,
        /// The machine in its final state.
        machine: &'a Machine,
        /// The SHA-256 of the journal, if there is one.
        journal_hash: Option<Sha256Digest>,
    },
}

/// Ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn on_event(&mut self, _: &RunEvent<'_>) -> Result<(), Disconnected> {
        Ok(())
    }
}
