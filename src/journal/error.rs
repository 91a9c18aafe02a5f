//! What can go wrong with stored sessions.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::journal_reader::RecordDamage;
use super::session_id::SessionId;

/// Why a stored session could not be read, written or found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The text is no session id; the user can mend that.
    #[error("'{0}' is no session id")]
    InvalidId(String),
    /// There is no such session.
    #[error("there is no session '{0}'")]
    UnknownSession(String),
    /// The beginning of an id fits several sessions.
    #[error("'{prefix}' is the beginning of {} sessions: {}", .matches.len(), list_ids(.matches))]
    Ambiguous {
        /// What the user wrote.
        prefix: String,
        /// The sessions that it fits.
        matches: Vec<SessionId>,
    },
    /// There is a session with this id already.
    #[error("session {0} exists already")]
    SessionExists(SessionId),
    /// Another process runs the session.
    #[error("session {session} is busy{}", by_process(*.pid))]
    Busy {
        /// The session.
        session: SessionId,
        /// The process, where it can be told.
        pid: Option<u32>,
    },
    /// Nobody runs the session, so nobody would read a message for it.
    #[error("session {0} is not running")]
    NotRunning(SessionId),
    /// The session cannot be gone on with as it is; it can be looked at.
    #[error("session {session} can only be read: {reason}")]
    ReadOnly {
        /// The session.
        session: SessionId,
        /// Why.
        reason: ReadOnlyReason,
    },
    /// Records of the session are damaged, and those behind them are not read.
    #[error("the journal of session {session} is damaged: {reason}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// What is damaged.
        reason: ReadOnlyReason,
    },
    /// The journal of a session says that it is that of another one: its file was renamed or copied.
    #[error("the journal of session {session} says that it is session {header}")]
    Misnamed {
        /// The session that the name of the file tells.
        session: SessionId,
        /// The session that its first record tells.
        header: SessionId,
    },
    /// The session has no such record.
    #[error("session {session} has no record {seq}; its last one is {last}")]
    NoRecord {
        /// The session.
        session: SessionId,
        /// The record that was asked for.
        seq: u64,
        /// The last one that there is.
        last: u64,
    },
    /// A record is no answer of a tool, so that it can't be replaced by another one.
    #[error("record {seq} of session {session} is not the result of a tool call")]
    NotAToolResult {
        /// The session.
        session: SessionId,
        /// The record.
        seq: u64,
    },
    /// The workspace of the session is gone.
    #[error("the workspace {0} of the session is gone")]
    NoWorkspace(PathBuf),
    /// A folder of the store cannot be trusted.
    #[error("{path} {reason}")]
    UntrustedFolder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is no place for the store: neither a state folder nor a home.
    #[error("there is no folder for sessions: neither XDG_STATE_HOME nor HOME is an absolute path")]
    NoStateFolder,
    /// A message for a session is too long.
    #[error("the message has {bytes} bytes; at most {limit} are taken")]
    MessageTooLong {
        /// Its length.
        bytes: usize,
        /// The longest that is taken.
        limit: usize,
    },
    /// A file that was to be imported is not what can be imported.
    #[error("{path} is no session: {reason}")]
    NotAnExport {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The index across sessions failed, in memory too.
    #[error("the index of the sessions failed: {0}")]
    Index(#[from] rusqlite::Error),
    /// The system refused something.
    #[error("could not {operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Why a session can only be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOnlyReason {
    /// A newer release wrote it.
    NewerFormat {
        /// The format that it has.
        format: u32,
    },
    /// A record is intact, and means nothing to this release.
    UnknownRecord {
        /// The record.
        seq: u64,
        /// What is not understood.
        reason: String,
    },
    /// There is damage before records that are intact; a repair would drop those.
    Damaged {
        /// The first record that is damaged.
        seq: u64,
        /// Where it begins in the file.
        offset: u64,
        /// What is wrong with it.
        damage: RecordDamage,
        /// How many records behind it are intact.
        intact_after: u64,
    },
}

impl fmt::Display for ReadOnlyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerFormat { format } => write!(f, "a newer release wrote it (format {format})"),
            Self::UnknownRecord { seq, reason: why } => {
                write!(f, "record {seq} is not understood by this release: {why}")
            }
            Self::Damaged { seq, offset, damage, intact_after: behind } => {
                write!(f, "record {seq} at byte {offset} is damaged ({damage})")?;
                match behind {
                    0 => Ok(()),
                    1 => f.write_str(", while a record behind it is intact"),
                    _ => write!(f, ", while {behind} records behind it are intact"),
                }
            }
        }
    }
}

/// Names what was tried, and on which file, when the system refuses something.
pub(super) trait IoContext<T> {
    fn io_context(self, what: &'static str, path: &Path) -> Result<T, JournalError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn io_context(self, what: &'static str, path: &Path) -> Result<T, JournalError> {
        self.map_err(|error| JournalError::Io {
            operation: what,
            path: path.to_owned(),
            source: error.into(),
        })
    }
}

/// Some of the sessions; a beginning like `0` fits all that there are.
fn list_ids(found: &[SessionId]) -> String {
    let some: Vec<String> = found.iter().take(5).map(SessionId::to_string).collect();
    let more = if found.len() > some.len() { ", …" } else { "" };
    some.join(", ") + more
}

fn by_process(pid: Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(": process {pid} runs it"))
}
