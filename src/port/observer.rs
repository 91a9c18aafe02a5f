//! Who watches a run: logs, streams, reports.

use thiserror::Error;

use crate::machine::{Event, Machine, MachineOutput};
use crate::model::{EffectId, RunTime};
use crate::port::{EffectNotice, ReplyDelta};

/// Somebody who watches. Watching changes nothing.
pub trait Observer: Send {
    /// Is told what happened.
    ///
    /// # Errors
    ///
    /// Fails when nobody reads any more what it writes; the run then ends.
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected>;
}

/// The reader of the output has gone away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the reader of the output has gone away")]
pub struct Disconnected;

/// Something that happened.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The run began.
    Started {
        /// When.
        at: RunTime,
        /// Where it stands.
        machine: &'a Machine,
        /// What follows.
        output: &'a MachineOutput,
    },
    /// The machine accepted an event.
    Handled {
        /// When.
        at: RunTime,
        /// The event.
        event: &'a Event,
        /// Where the run stands now.
        machine: &'a Machine,
        /// What follows.
        output: &'a MachineOutput,
    },
    /// Something of a reply arrived that is not complete.
    ReplyDelta {
        /// When.
        at: RunTime,
        /// The model call.
        id: EffectId,
        /// What arrived.
        delta: &'a ReplyDelta,
    },
    /// Somebody who works on an effect has something to tell.
    Notice {
        /// When.
        at: RunTime,
        /// The effect.
        id: EffectId,
        /// What is told.
        notice: &'a EffectNotice,
    },
    /// Nothing more will happen.
    Ended {
        /// When.
        at: RunTime,
        /// Where the run stands.
        machine: &'a Machine,
    },
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn on_event(&mut self, _: &RunEvent<'_>) -> Result<(), Disconnected> {
        Ok(())
    }
}
