//! Floor 3: the workspace — files below one folder, reached by a handle that nothing can lead out of.
//!
//! [`Root`] is the handle. A path is a [`RelPath`] before anything is opened: relative, without `..`; the system then
//! resolves it beneath the handle, so that neither a symbolic link nor a folder that is swapped meanwhile leads outside.
//! Reading never blocks on a pipe or a device. Writing replaces a file as a whole ([`Batch`]): whatever goes wrong, the
//! old content is still there. [`Text`] keeps what is not content: byte order mark, encoding, line ends. The
//! [`index`] tells how a workspace is laid out.

mod batch;
mod digest;
mod error;
mod generated;
mod guard;
pub mod index;
mod lines;
mod listing;
mod path;
mod root;
mod target;
mod text;

pub use batch::{Batch, Before, Change, left_beside};
pub use digest::sha256;
pub use error::FileError;
pub use generated::is_generated;
pub use guard::{Access, Guard};
pub use lines::{Page, PageLimits};
pub use listing::{Entry, Kind, entries};
pub use path::{PathError, RelPath, shown};
pub use root::{Opened, Root};
pub use target::{append, open_without_links, target_inside};
pub use text::{Encoding, LineEnd, Text, is_binary};
