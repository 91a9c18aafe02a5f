//! What may be touched, by what it really is.
//!
//! A path is checked before anything is opened. Another process may turn a folder on the way into a link meanwhile; so
//! what is opened is asked for its name, and checked again. Whatever becomes of the name later, it is the open folder
//! that is read or written.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use cap_std::fs::Dir;

use super::error::FileError;
use super::path::RelPath;

/// Says what may be touched.
pub trait AccessGuard: Send + Sync {
    /// Returns whether there is anything that may not be touched like this.
    fn is_restricted(&self, access: AccessMode) -> bool;

    /// Returns why a path may not be touched; `None` if it may be.
    fn denial_reason(&self, path: &RelPath, access: AccessMode) -> Option<String>;

    /// Returns whether nothing may be written in the folder of a repository of git, and none may be made.
    fn protects_repositories(&self) -> bool;
}

/// How something is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// It is read.
    Read,
    /// It is made, replaced or deleted.
    Write,
}

impl fmt::Debug for dyn AccessGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// Fails if something that is open, by its real name, may not be touched.
pub(super) fn check_access(
    guard: &dyn AccessGuard,
    real: Option<RelPath>,
    path: &RelPath,
    access: AccessMode,
) -> Result<(), FileError> {
    if !guard.is_restricted(access) {
        return Ok(());
    }
    // What has no name any more was replaced at this moment.
    let real = real.ok_or_else(|| FileError::Changed(path.clone()))?;
    match guard.denial_reason(&real, access) {
        Some(why) => Err(FileError::Denied(path.clone(), why)),
        None => Ok(()),
    }
}

/// Returns the name of something that is open, relative to the root; `None` if it has none there.
pub(super) fn real_path(root: BorrowedFd<'_>, open: BorrowedFd<'_>) -> Option<RelPath> {
    let inside = path_of_open(open)?.strip_prefix(path_of_open(root)?).ok()?.to_owned();
    RelPath::new(inside).ok()
}

/// Returns the absolute path of something that is open, as the system knows it.
#[cfg(target_os = "linux")]
fn path_of_open(open: BorrowedFd<'_>) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    let path = std::fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).ok()?;
    // Of what is gone, the system tells the name that it had.
    let (found, held) = (path.symlink_metadata().ok()?, rustix::fs::fstat(open).ok()?);
    let is_same = found.ino() == held.st_ino && found.dev() == held.st_dev;
    is_same.then_some(path)
}

/// Returns the absolute path of something that is open, as the system knows it.
#[cfg(target_vendor = "apple")]
fn path_of_open(open: BorrowedFd<'_>) -> Option<PathBuf> {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let path = rustix::fs::getpath(open).ok()?;
    Some(OsString::from_vec(path.into_bytes()).into())
}

/// Other systems don't tell.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn path_of_open(_: BorrowedFd<'_>) -> Option<PathBuf> {
    None
}

/// Returns whether a folder that is or contains the parent of a new file is a repository of git, or would be one with it.
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
