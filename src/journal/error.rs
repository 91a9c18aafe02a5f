//! Errors of stored sessions.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::session_id::{InvalidSessionId, SessionId};
pub(super) use crate::workspace::IoContext;
use crate::workspace::IoError;

/// The result of an operation on sessions.
pub(super) type Result<T, E = JournalError> = std::result::Result<T, E>;

/// The reason why a stored session could not be read, written or found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The text is not a session id.
    #[error(transparent)]
    InvalidId(#[from] InvalidSessionId),
    /// There is no such session.
    #[error("there is no session '{0}'")]
    UnknownSession(String),
    /// The prefix matches several sessions.
    #[error("'{prefix}' matches {} sessions: {}", .matches.len(), list_ids(.matches))]
    Ambiguous {
        /// The prefix.
        prefix: String,
        /// The matching sessions.
        matches: Vec<SessionId>,
    },
    /// A session with this id already exists.
    #[error("session {0} exists already")]
    SessionExists(SessionId),
    /// Another process runs the session.
    #[error("session {session} is busy{}", by_process(*.pid))]
    Busy {
        /// The session.
        session: SessionId,
        /// The id of the process, if known.
        pid: Option<u32>,
    },
    /// No process runs the session, so no process would read a message for it.
    #[error("session {0} is not running")]
    NotRunning(SessionId),
    /// The session cannot be resumed in its current state, only read.
    #[error("session {session} can only be read: {reason}")]
    ReadOnly {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: ReadOnlyReason,
    },
    /// Records of the session are damaged, and the records after them are not read.
    #[error("the journal of session {session} is damaged: {reason}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The damage.
        reason: ReadOnlyReason,
    },
    /// The header names another session than the file does: the file was renamed or copied.
    #[error("the journal of session {session} has the header of session {header}")]
    Misnamed {
        /// The session in the file name.
        session: SessionId,
        /// The session in the header.
        header: SessionId,
    },
    /// The session has no record with this number.
    #[error("session {session} has no record {seq}; its last one is {last}")]
    NoRecord {
        /// The session.
        session: SessionId,
        /// The number of the requested record.
        seq: u64,
        /// The number of the session's last record.
        last: u64,
    },
    /// The record is not a tool result, so a tool result can't replace it.
    #[error("record {seq} of session {session} is not the result of a tool call")]
    NotAToolResult {
        /// The session.
        session: SessionId,
        /// The record.
        seq: u64,
    },
    /// The workspace of the session no longer exists.
    #[error("the workspace {0} of the session does not exist")]
    NoWorkspace(PathBuf),
    /// A folder of the store is unsafe to use.
    #[error("{path} {reason}")]
    UntrustedFolder {
        /// The folder.
        path: PathBuf,
        /// The problem of the folder.
        reason: &'static str,
    },
    /// No environment variable determines the folder of the store.
    #[error("no folder for sessions: neither XDG_STATE_HOME nor HOME is an absolute path")]
    NoStateFolder,
    /// A message for a session is too long.
    #[error("the message has {bytes} bytes; the limit is {limit}")]
    MessageTooLong {
        /// The length of the message, in bytes.
        bytes: usize,
        /// The maximum length, in bytes.
        limit: usize,
    },
    /// The file is not an exported session.
    #[error("{path} is not an exported session: {reason}")]
    NotAnExport {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The index across sessions failed, even in memory.
    #[error("the session index failed: {0}")]
    Index(#[from] rusqlite::Error),
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The reason why a session can only be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOnlyReason {
    /// A newer release wrote the session.
    NewerFormat {
        /// The format of the session.
        format: u32,
    },
    /// A record is intact, but of a kind that this release doesn't know.
    UnknownRecord {
        /// The record.
        seq: u64,
        /// The unknown part.
        reason: String,
    },
    /// Damage precedes intact records, which a repair would drop.
    Damaged {
        /// The first damaged record.
        seq: u64,
        /// Its offset in the file, in bytes.
        offset: u64,
        /// The damage of the record.
        damage: RecordDamage,
        /// The number of intact records after it.
        intact_after: u64,
    },
}

/// The damage of a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordDamage {
    /// The file ends within the record.
    #[error("unterminated line")]
    Unterminated,
    /// The line does not end with a checksum.
    #[error("missing checksum")]
    NoChecksum,
    /// The checksum does not continue the previous one.
    #[error("wrong checksum")]
    WrongChecksum,
    /// The record has another sequence number than its position.
    #[error("wrong sequence number {0}")]
    WrongSequence(u64),
    /// A record other than the header at the beginning, or a header elsewhere.
    #[error("misplaced header")]
    MisplacedHeader,
    /// The line is longer than any line that a release writes.
    #[error("line too long")]
    TooLong,
    /// A text that is stored separately is missing.
    #[error("{0}")]
    MissingBlob(String),
}

impl fmt::Display for ReadOnlyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerFormat { format } => {
                write!(f, "it was written by a newer release (format {format})")
            }
            Self::UnknownRecord { seq, reason } => {
                write!(f, "record {seq} is unknown to this release: {reason}")
            }
            Self::Damaged { seq, offset, damage, intact_after: behind } => {
                write!(f, "record {seq} at byte {offset} is damaged ({damage})")?;
                match behind {
                    0 => Ok(()),
                    1 => f.write_str(", and a record after it is intact"),
                    _ => write!(f, ", and {behind} records after it are intact"),
                }
            }
        }
    }
}

/// Lists the first five of the sessions; a prefix like `0` matches all of them.
fn list_ids(found: &[SessionId]) -> String {
    let some: Vec<String> = found.iter().take(5).map(SessionId::to_string).collect();
    let more = if found.len() > some.len() { ", …" } else { "" };
    some.join(", ") + more
}

fn by_process(pid: Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(": process {pid} runs it"))
}
