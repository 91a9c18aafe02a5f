//! The journal: every accepted event, durable before what follows from it happens.

use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use crate::machine::Event;
use crate::model::{EffectId, Time};

/// Where a run is written down.
pub trait Journal: Send {
    /// Adds a record at the end.
    ///
    /// # Errors
    ///
    /// Fails when the record cannot be kept. Nothing more may happen then.
    fn append(&mut self, at: Time, record: Record<'_>) -> Result<(), StoreError>;

    /// Makes durable what was added.
    ///
    /// # Errors
    ///
    /// Fails when that is not certain. Nothing more may happen then, and it must not be tried again: what the system
    /// has lost once it reports as kept the second time.
    fn sync(&mut self) -> Result<(), StoreError>;
}

/// What is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Record<'a> {
    /// An event that the machine accepted; state and conversation are folded from these.
    Event(&'a Event),
    /// What a model call had said before it was cancelled. It is told, and never enters the conversation.
    Partial {
        /// The call.
        id: EffectId,
        /// The text.
        text: &'a str,
    },
}

/// Why a journal could not be kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct StoreError(pub Arc<str>);

/// No journal, for runs that nobody will resume.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn append(&mut self, _: Time, _: Record<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
