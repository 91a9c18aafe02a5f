//! Floor 3: the workspace — files below one folder, reached by a handle that nothing can lead out of.
//!
//! [`Root`] is the handle. A path is a [`RelPath`] before anything is opened: relative, without `..`; the system then
//! resolves it beneath the handle, so that neither a symbolic link nor a folder that is swapped meanwhile leads outside.
//! Reading never blocks on a pipe or a device. Writing replaces a file as a whole ([`ChangeBatch`]): whatever goes wrong, the
//! old content is still there. [`Text`] keeps what is not content: byte order mark, encoding, line ends. The
//! [`index`] tells how a workspace is laid out.

mod access;
mod batch;
mod digest;
mod error;
mod generated;
pub mod index;
mod listing;
mod output_file;
mod path;
mod root;
mod text;
mod text_page;

pub use access::{AccessGuard, AccessMode};
pub use batch::{BatchedChange, ChangeBatch, ExpectedContent, leftover_path};
pub use digest::sha256;
pub use error::FileError;
pub use generated::is_generated;
pub use listing::{FileKind, FolderEntry, entries};
pub use output_file::{open_for_append, open_without_links, resolve_inside};
pub use path::{PathError, RelPath, escape_name};
pub use root::{OpenFile, WorkspaceRoot};
pub use text::{Encoding, LineEnd, TextFile, is_binary};
pub use text_page::{PageLimits, TextPage};
