//! The journal: every accepted event, durable before what follows from it happens.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::machine::{Done, Event, Fingerprint};
use crate::model::{EffectId, RunTime, TimeSpan};

/// Where a run is written down.
pub trait Journal: Send {
    /// Adds a record at the end.
    ///
    /// # Errors
    ///
    /// Fails when the record cannot be kept. Nothing more may happen then. What the run still says about its end is
    /// added all the same: there may be room that was kept for it.
    fn append(&mut self, at: RunTime, record: JournalRecord<'_>) -> Result<(), StoreError>;

    /// Makes durable what was added.
    ///
    /// # Errors
    ///
    /// Fails when that is not certain. Nothing more may happen then, and it must not be tried again: what the system
    /// has lost once it reports as kept the second time.
    fn sync(&mut self) -> Result<(), StoreError>;
}

/// What is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalRecord<'a> {
    /// An event that the machine accepts; state and conversation are folded from these.
    Event {
        /// The event.
        event: &'a Event,
        /// Where the run stood when the event came.
        fingerprint: Fingerprint,
        /// Where the time of a model call went, when the event completes one.
        timing: Option<CallTiming>,
    },
    /// What a model call had said before it was cancelled. It is told, and never enters the conversation.
    Partial {
        /// The call.
        id: EffectId,
        /// The text.
        text: &'a str,
    },
    /// The run is over.
    Ended {
        /// How.
        done: &'a Done,
        /// Where the run stands.
        fingerprint: Fingerprint,
    },
}

/// Where the time of a model call went. It is told, and nothing is decided by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTiming {
    /// Writing the request down.
    pub encode: TimeSpan,
    /// From there to the first byte of the reply; none when no byte came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<TimeSpan>,
}

/// Why a journal could not be kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct StoreError(pub Arc<str>);

/// No journal, for runs that nobody will resume.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn append(&mut self, _: RunTime, _: JournalRecord<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
