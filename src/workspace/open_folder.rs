//! Folders that are opened without following links.
//!
//! A command may replace a folder by a link at any time. Therefore, a checked path is not used by name again: each of
//! its folders is opened in the previous one, and changes are made to entries of an open folder.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{Mode, OFlags, fchmod, mkdirat, openat};
use rustix::io::Errno;

use super::link_resolver::LinkResolver;

/// Runs an operation, and runs it again if it fails, because an error of a disk may be temporary.
pub(in crate::workspace) fn twice<T, E>(act: impl Fn() -> Result<T, E>) -> Result<T, E> {
    act().or_else(|_| act())
}

/// Returns whether an error means that the file does not exist.
pub(in crate::workspace) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Removes an entry that is no longer needed. If it can't be removed, logs the reason, and returns `false`.
pub(crate) fn remove_unneeded<T>(shown: impl Display, remove: impl Fn() -> io::Result<T>) -> bool {
    let failed = twice(remove).err().filter(|error| !is_gone(error));
    if let Some(error) = &failed {
        log::warn!("could not remove {shown}: {error}");
    }
    failed.is_none()
}

/// Removes a folder with everything in it, including folders without write permission, as package managers and tests
/// create them.
///
/// # Errors
///
/// Fails on an I/O error.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = std::fs::remove_dir_all(path);
    if !removed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return removed;
    }
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let _ = std::fs::set_permissions(&folder, Permissions::from_mode(OWNER));
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        // Links to folders are not followed.
        let inside = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(inside.map(|entry| entry.path()));
    }
    std::fs::remove_dir_all(path)
}

/// All permissions of a folder's owner.
pub(crate) const OWNER: u32 = 0o700;

/// Opens a folder at an absolute path without links, for example a canonicalized one.
///
/// # Errors
///
/// Fails if the folder, or a folder above it, is a link.
pub(crate) fn open_canonical(path: &Path) -> io::Result<Dir> {
    let (top, inside) = split_canonical(path)?;
    open_below(&top, inside)
}

/// Opens a folder like [`open_canonical`], and creates missing folders.
///
/// # Errors
///
/// Fails if the folder, or a folder above it, is a link, and if a folder can't be created.
pub(crate) fn create_canonical(path: &Path) -> io::Result<Dir> {
    let (top, inside) = split_canonical(path)?;
    create_below(&top, inside)
}

/// Opens the parent folder of an absolute path like [`open_canonical`]. Returns it with the name of the entry in it.
///
/// # Errors
///
/// Fails if a folder is a link.
pub(crate) fn open_canonical_parent(path: &Path) -> io::Result<(Dir, &OsStr)> {
    let (top, inside) = split_canonical(path)?;
    match inside.file_name() {
        Some(_) => open_parent(&top, inside),
        None => Ok((top, OsStr::new("."))),
    }
}

/// Opens a parent folder like [`open_canonical_parent`]. A folder that may not be entered is given all permissions of
/// its owner.
///
/// # Errors
///
/// Fails if a folder is a link, and for a closed folder of another user.
pub(crate) fn enter_canonical_parent(path: &Path) -> io::Result<(Dir, &OsStr)> {
    let (top, inside) = split_canonical(path)?;
    let name = inside.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = inside.parent().unwrap_or(Path::new(""));
    let enter = |folder: &Dir, name: &OsStr| match open_child(folder, name) {
        Err(Errno::ACCESS) if set_folder_mode(folder, OWNER).is_ok() => open_child(folder, name),
        opened => opened,
    };
    Ok((walk(&top, parent, enter)?, name))
}

fn split_canonical(path: &Path) -> io::Result<(Dir, &Path)> {
    let inside = path.strip_prefix("/").map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok((Dir::open_ambient_dir("/", ambient_authority())?, inside))
}

/// Opens a folder below another one.
///
/// # Errors
///
/// Fails if the folder, or a folder above it, is a link.
pub(crate) fn open_below(folder: &Dir, path: &Path) -> io::Result<Dir> {
    walk(folder, path, open_child)
}

/// Replaces an entry of a folder by a file that only the user can access, once that file is complete. Until then, it
/// has the name `new`, which must not exist.
///
/// # Errors
///
/// Fails on an I/O error, including those of `write`. The new file is then removed.
pub(crate) fn replace_entry(
    folder: &Dir,
    name: &OsStr,
    new: &str,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = folder.open_with(new, &options)?.into_std();
    write(&mut file).and_then(|()| folder.rename(new, folder, name)).inspect_err(|_| {
        let _ = folder.remove_file(new);
    })
}

/// Opens a folder below another one, and creates missing folders.
///
/// # Errors
///
/// Fails if the folder, or a folder above it, is a link, and if a folder can't be created.
pub(super) fn create_below(folder: &Dir, path: &Path) -> io::Result<Dir> {
    walk(folder, path, |folder, name| match open_child(folder, name) {
        Err(Errno::NOENT) => match mkdirat(folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => open_child(folder, name),
            Err(error) => Err(error),
        },
        opened => opened,
    })
}

/// Opens the parent folder of a path below another folder. Returns it with the name of the entry in it.
///
/// # Errors
///
/// Fails if a folder is a link.
pub(crate) fn open_parent<'p>(folder: &Dir, path: &'p Path) -> io::Result<(Dir, &'p OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((open_below(folder, path.parent().unwrap_or(Path::new("")))?, name))
}

/// Opens a regular file of a folder for reading. Neither a link nor a pipe in its place is followed.
///
/// # Errors
///
/// Fails if there is no readable file.
pub(crate) fn open_file(folder: &Dir, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    Ok(folder.open_with(name, &options)?.into_std())
}

/// Copies a file or a link, with its permissions and times, to a new name. Other entries are not copied.
///
/// # Errors
///
/// Fails if the new name exists, and on an error of the system.
pub(super) fn copy_entry(from: &Dir, name: &OsStr, to: &Dir, new: &OsStr) -> io::Result<()> {
    let found = from.symlink_metadata(name)?;
    if found.is_symlink() {
        return to.symlink_contents(from.read_link_contents(name)?, new);
    }
    if !found.is_file() {
        return Ok(());
    }
    let mut source = open_file(from, name)?;
    let found = source.metadata()?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut copy = to.open_with(new, &options)?.into_std();
    let mut fill = || {
        io::copy(&mut source, &mut copy)?;
        if let Ok(modified) = found.modified() {
            copy.set_times(FileTimes::new().set_modified(modified))?;
        }
        copy.set_permissions(Permissions::from_mode(found.permissions().mode() & 0o7777))
    };
    fill().inspect_err(|_| {
        let shown = format_args!("the unfinished copy {}", new.display());
        remove_unneeded(shown, || to.remove_file(new));
    })
}

/// Sets the permissions of a folder, even if its current ones forbid reading it.
///
/// # Errors
///
/// Fails for a folder of another user.
pub(crate) fn set_folder_mode(folder: &Dir, mode: u32) -> io::Result<()> {
    match fchmod(folder, Mode::from_bits_truncate(mode as _)) {
        // An unreadable folder was opened only as a location of names.
        Err(Errno::BADF) => {
            let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
            std::fs::set_permissions(link, Permissions::from_mode(mode))
        }
        set => Ok(set?),
    }
}

/// Opens a folder. An unreadable folder is opened only as a location of names.
fn open_child(folder: &Dir, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags | OFlags::RDONLY, Mode::empty()) {
        // Systems differ in their error for a link.
        Err(Errno::LOOP) => Err(Errno::NOTDIR),
        #[cfg(target_os = "linux")]
        Err(Errno::ACCESS) => openat(folder, name, flags | OFlags::PATH, Mode::empty()),
        opened => opened,
    }
}

/// Opens the folders of a path, each in the previous one.
fn walk(
    folder: &Dir,
    path: &Path,
    open: impl Fn(&Dir, &OsStr) -> rustix::io::Result<OwnedFd>,
) -> io::Result<Dir> {
    let mut folder = folder.try_clone()?;
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                folder = Dir::from_std_file(File::from(open(&folder, name)?));
            }
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
    }
    Ok(folder)
}

/// Resolves the links of an absolute path, as far as it exists.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    LinkResolver::default().resolve(path).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_wherever_it_is() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        symlink("a", top.join("link")).unwrap();
        let folder = open_canonical(&top).unwrap();
        assert!(open_below(&folder, Path::new("a/b")).is_ok());
        assert!(create_below(&folder, Path::new("a/b/c/d")).is_ok());
        assert!(open_canonical(&top.join("link/b")).is_err());
        assert!(create_canonical(&top.join("a/new/one")).is_ok());
        assert!(create_canonical(&top.join("link/other")).is_err());
        assert!(top.join("a/new/one").is_dir() && !top.join("a/other").exists());
        for path in ["link", "link/b", "a/../a", "/"] {
            assert!(open_below(&folder, Path::new(path)).is_err(), "{path}");
            assert!(create_below(&folder, Path::new(path)).is_err(), "{path}");
        }
        let of_file = open_parent(&folder, Path::new("a/x")).unwrap();
        assert_eq!(of_file.1, "x");
        assert!(open_parent(&folder, Path::new("link/x")).is_err());
    }
}
