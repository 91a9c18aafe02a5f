//! Access checks by real path.
//!
//! A path is checked before it is opened. Meanwhile, another process may replace one of its folders by a link, so the
//! real path of the opened file is checked again. Later renames do not matter, because the open file itself is read or
//! written.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use cap_std::fs::Dir;

use super::error::FileError;
use super::path::RelPath;

/// Decides which paths may be accessed.
pub trait AccessGuard: Send + Sync {
    /// Returns whether reading any path is denied.
    fn restricts_reading(&self) -> bool;

    /// Returns the reason why access to a path is denied; `None` if it is allowed.
    fn denial_reason(&self, path: &RelPath, access: AccessMode) -> Option<String>;

    /// Returns whether writing in git repositories, and creating them, is denied.
    fn protects_repositories(&self) -> bool;
}

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Reading.
    Read,
    /// Creating, replacing or deleting.
    Write,
}

impl fmt::Debug for dyn AccessGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// Fails if access to the real path of an open file is denied.
pub(super) fn check_access(
    guard: &dyn AccessGuard,
    real: Option<RelPath>,
    path: &RelPath,
    access: AccessMode,
) -> Result<(), FileError> {
    // A file without a path was replaced just now.
    let real = real.ok_or_else(|| FileError::Changed(path.clone()))?;
    match guard.denial_reason(&real, access) {
        Some(why) => Err(FileError::Denied(path.clone(), why)),
        None => Ok(()),
    }
}

/// Returns the path of an open file relative to the root; `None` if it is not below the root.
pub(super) fn real_path(root: BorrowedFd<'_>, open: BorrowedFd<'_>) -> Option<RelPath> {
    let inside = path_of_open(open)?.strip_prefix(path_of_open(root)?).ok()?.to_owned();
    RelPath::new(inside).ok()
}

/// Returns the current absolute path of an open file.
#[cfg(target_os = "linux")]
fn path_of_open(open: BorrowedFd<'_>) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    let path = std::fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).ok()?;
    // For a deleted file, the system returns its former name.
    let (found, held) = (path.symlink_metadata().ok()?, rustix::fs::fstat(open).ok()?);
    let is_same = found.ino() == held.st_ino && found.dev() == held.st_dev;
    is_same.then_some(path)
}

/// Returns the current absolute path of an open file.
#[cfg(target_vendor = "apple")]
fn path_of_open(open: BorrowedFd<'_>) -> Option<PathBuf> {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let path = rustix::fs::getpath(open).ok()?;
    Some(OsString::from_vec(path.into_bytes()).into())
}

/// Not available on other systems.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn path_of_open(_: BorrowedFd<'_>) -> Option<PathBuf> {
    None
}

/// Returns whether the parent of a new file, or a folder above it, is a git repository or becomes one with the file.
pub(super) fn is_inside_repository(root: &Dir, path: &RelPath) -> bool {
    let mut folder = path.parent();
    let mut below = path.name().map(std::ffi::OsStr::to_owned);
    while let (Some(at), Some(name)) = (folder, below) {
        let has = |entry: &str| {
            name == entry || root.symlink_metadata(at.join(entry.as_ref()).as_path()).is_ok()
        };
        if has("HEAD") && (has("objects") && has("refs") || has("commondir")) {
            return true;
        }
        below = at.name().map(std::ffi::OsStr::to_owned);
        folder = at.parent();
    }
    false
}
