//! The journal: every accepted event is durable before its effects start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::RequestDigest;
use crate::machine::{Done, Event, Fingerprint};
use crate::types::{CheckpointRecord, EffectId, RunTime, Sha256Digest, TimeSpan, Tokens};

/// The journal of a run.
pub trait Journal: Send {
    /// Appends a record.
    ///
    /// # Errors
    ///
    /// Fails if the record can't be stored. After that, no further effect may start. The end of the run is still
    /// appended, because the journal may have reserved space for it.
    fn append(&mut self, at: RunTime, record: JournalRecord<'_>) -> Result<(), StoreError>;

    /// Makes the appended records durable.
    ///
    /// # Errors
    ///
    /// Fails if their durability isn't certain. After that, no further effect may start, and the call must not be
    /// repeated: a system that has lost data may report success the second time.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// Returns the SHA-256 of all records so far; `None` if the stored content is unknown.
    fn head(&self) -> Option<Sha256Digest> {
        None
    }
}

/// A record of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalRecord<'a> {
    /// An event that the machine accepts. State and conversation are rebuilt from these.
    Event {
        /// The event.
        event: &'a Event,
        /// The fingerprint of the machine before the event.
        fingerprint: Fingerprint,
        /// The timing of the model call that the event completes or may cut off.
        timing: Option<CallTiming>,
    },
    /// The text of a cancelled model call. It is only displayed, and never part of the conversation.
    Partial {
        /// The call.
        id: EffectId,
        /// The text.
        text: &'a str,
    },
    /// The state of the workspace. It is never part of the machine.
    Checkpoint(&'a CheckpointRecord),
    /// The end of the run.
    Ended {
        /// The final state.
        done: &'a Done,
        /// The fingerprint of the machine.
        fingerprint: Fingerprint,
    },
}

/// The timing and the request of a model call, for display. No decision depends on them, except on the received output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTiming {
    /// The time for encoding the request.
    pub encode: TimeSpan,
    /// The time from the encoded request to the first byte of the reply, or `None` if no byte arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<TimeSpan>,
    /// The digest of the request, which a replay compares with the one that it builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestDigest>,
    /// The estimated part of the reply that had arrived at the event, if the call wasn't complete.
    #[serde(default, skip_serializing_if = "Tokens::is_zero")]
    pub received: Tokens,
}

/// The reason why a record could not be stored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct StoreError(pub Arc<str>);

/// No journal, for runs that can't be resumed.
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
