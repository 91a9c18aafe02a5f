//! Layer 3: the workspace, which is the files below one folder. They are accessed through a handle that no path leads
//! out of.
//!
//! [`WorkspaceRoot`] is the handle. A path is converted to a [`RelPath`] before it is opened: relative, without `..`.
//! The system resolves it beneath the handle, so that neither a symbolic link nor a concurrently replaced folder leads
//! outside. Reading never blocks on a pipe or a device. Writing replaces a file atomically ([`apply_changes`]): on
//! failure, the old content is intact. [`TextFile`] preserves byte order mark, encoding and line ends. The [`index`]
//! describes the layout of a workspace. A [`worktree`] is an isolated workspace in a separate folder.

mod access_guard;
mod atomic_file;
pub mod checkpoint;
mod edit_batch;
mod editor_buffers;
mod error;
mod file_kind;
mod file_lock;
mod generated_folders;
pub mod image;
pub mod index;
mod input_file;
mod line_page;
mod link_resolver;
mod listing;
mod open_folder;
mod output_file;
mod path;
mod root;
mod text;
mod text_diff;
mod text_page;
pub mod worktree;

pub use access_guard::{AccessGuard, AccessMode};
pub use atomic_file::{
    TemporaryFile, create_durable_folder, create_private_folder, replace_file, sync_folder,
};
pub use edit_batch::{BatchedChange, apply_changes, leftover_path, sha256};
pub use editor_buffers::EditorBuffers;
pub use error::{FileError, IoContext, IoError};
pub use file_kind::FileKind;
pub use file_lock::lock_within;
pub use generated_folders::is_generated;
pub use input_file::{open_input, read_input};
pub use line_page::{LinePage, LinePosition, MAX_LINE_PAGE, read_line_page};
pub use link_resolver::LinkResolver;
pub(crate) use link_resolver::MAX_LINKS;
pub use listing::{FileLookup, FolderEntry, entries, has_readable_ignore_files, walk_builder};
pub(crate) use open_folder::{
    OWNER, create_canonical, enter_canonical_parent, open_below, open_canonical,
    open_canonical_parent, open_file, open_parent, real_path, remove_tree, remove_unneeded,
    replace_entry, set_folder_mode,
};
pub use output_file::{FileId, open_anywhere, open_for_append, open_without_links, resolve_inside};
pub use path::{PathError, RelPath, link_target, normalize_path};
pub use root::{OpenFile, WorkspaceRoot};
pub use text::{Encoding, TextFile, is_binary};
pub use text_diff::{common_ends, unified_diff};
pub use text_page::{PageLimits, TextPage};
