//! Floor 4: the journal of sessions.
//!
//! ```text
//!  run ──▶ FileJournal ──▶ sessions/ID.jsonl ──▶ Reader ──▶ replay ──▶ Past ──▶ resume, fork
//!          (writer, line)   (blobs, mail beside)                 └────▶ index, trace, export
//! ```
//!
//! One line of JSON for each record, with its place and a checksum that goes on from the line before; one process
//! writes, anybody reads. Everything else — where a session stands, how it goes on, the [`index`] across sessions — is
//! folded from these lines.

mod blobs;
mod claim;
mod copy;
mod error;
mod folder;
mod header;
mod history;
mod id;
mod line;
mod mail;
mod outputs;
mod reader;
mod replay;
mod reserve;
mod resume;
mod store;
mod workspace;
mod writer;

pub mod index;

pub use copy::{Fork, Imported, Instead};
pub use error::{JournalError, ReadOnly};
pub use header::{Begin, Dispatcher, Ended, FORMAT, Header, Lineage, Resumed, Setting, Wall};
pub use history::{History, NoHistory, Repairs};
pub use id::SessionId;
pub use index::Index;
pub use line::{Content, Partial, Stored, StoredMark};
pub use mail::{Letter, LetterKind, Mail, MailId};
pub use outputs::{Outputs, Page};
pub use reader::{Damage, Found, Position, Reader};
pub use replay::{Difference, End, EndKind, Past, Replayed};
pub use resume::{GoOn, Going, Opened};
pub use store::{Listed, Repair, Store, default_root};
pub use workspace::{Drift, Head, Workspace};
pub use writer::FileJournal;

/// What a journal survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the machine: what justifies an effect is on the disk before the effect.
    #[default]
    Full,
    /// The end of the process only, `kill -9` included.
    Os,
}
