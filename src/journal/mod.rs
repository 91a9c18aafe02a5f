//! Layer 4: the journal of sessions.
//!
//! ```text
//!  run ──▶ FileJournal ──▶ sessions/ID.jsonl ──▶ JournalReader ──▶ replay ──▶ SessionHistory ──▶ resume, fork
//!                          (texts, messages in ID/)                   └──▶ index, trace, export
//! ```
//!
//! A record is one line of JSON, with its sequence number and a checksum that continues the checksum of the previous
//! line. A writer hashes all lines with SHA-256, and stores the hash where a run is resumed or ends. Texts in separate
//! files are covered by their digests in the lines. One process writes, any process can read. Everything else (the
//! state of a session, its resume, the [`index`] across sessions) is computed from these lines.

mod blobs;
mod error;
mod file_journal;
mod folder;
mod fork_export;
mod header;
mod implied_reads;
mod journal_reader;
mod record_line;
mod replay;
mod resume;
mod session_id;
mod session_outputs;
mod session_store;
mod space_reservation;
mod steering_queue;
mod subagent_usage;
mod workspace_identity;

pub mod index;

pub use crate::types::Durability;
pub use error::{JournalError, ReadOnlyReason, RecordDamage};
pub use file_journal::FileJournal;
pub use fork_export::{ForkOptions, ImportedSession, LaneFork, ReplacementResult};
pub use header::{
    Ancestry, EndedRecord, JOURNAL_FORMAT, ParentCall, ResumedRecord, SessionHeader, SessionSetup,
    WallTime,
};
pub use index::SessionIndex;
pub use journal_reader::{JournalPosition, JournalReader};
pub use record_line::{PartialReply, ReadRecord, StoredContent, StoredFingerprint, StoredRecord};
pub(crate) use record_line::{seal, verify_seal};
pub use replay::{
    AuthorizedEdit, Divergence, JournalEnd, JournalEndKind, ReplayedRecord, SessionHistory,
    StoredCheckpoint,
};
pub use resume::{OpenedSession, ResumeOptions, ResumedSession};
pub use session_id::{InvalidSessionId, SessionId};
pub use session_outputs::SessionOutputs;
pub use session_store::{DamagePolicy, ListedSession, SessionStore, default_root};
pub use steering_queue::{MessageId, MessageKind, QueuedMessage, SteeringQueue};
pub use workspace_identity::{GitHead, WorkspaceChange, WorkspaceIdentity};
