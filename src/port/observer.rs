//! Who watches a run: logs, streams, reports.

use thiserror::Error;

use crate::machine::{Event, Fold, Outcomes};
use crate::model::{EffectId, Time};
use crate::port::{Delta, Notice};

/// Somebody who watches. Watching changes nothing.
pub trait Observer: Send {
    /// Is told what happened.
    ///
    /// # Errors
    ///
    /// Fails when nobody reads any more what it writes; the run then ends.
    fn see(&mut self, seen: &Seen<'_>) -> Result<(), Gone>;
}

/// The reader of the output has gone away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the reader of the output has gone away")]
pub struct Gone;

/// Something that happened.
#[derive(Debug)]
pub enum Seen<'a> {
    /// The run began.
    Begun {
        /// When.
        at: Time,
        /// Where it stands.
        fold: &'a Fold,
        /// What follows.
        outcomes: &'a Outcomes,
    },
    /// The machine accepted an event.
    Event {
        /// When.
        at: Time,
        /// The event.
        event: &'a Event,
        /// Where the run stands now.
        fold: &'a Fold,
        /// What follows.
        outcomes: &'a Outcomes,
    },
    /// Something of a reply arrived that is not complete.
    Delta {
        /// When.
        at: Time,
        /// The model call.
        id: EffectId,
        /// What arrived.
        delta: &'a Delta,
    },
    /// Somebody who works on an effect has something to tell.
    Notice {
        /// When.
        at: Time,
        /// The effect.
        id: EffectId,
        /// What is told.
        notice: &'a Notice,
    },
    /// Nothing more will happen.
    Ended {
        /// When.
        at: Time,
        /// Where the run stands.
        fold: &'a Fold,
    },
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Observer for Nobody {
    fn see(&mut self, _: &Seen<'_>) -> Result<(), Gone> {
        Ok(())
    }
}
