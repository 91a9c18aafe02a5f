//! Output files named by the user, in folders that others can write.
//!
//! A link inside the workspace may have been created by the model or the repository. A user who names a file for a log
//! or an answer does not mean the link's target.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, RawMode, Stat, fcntl_getfl, fcntl_setfl, fstat, stat};

/// The identity of a file, independent of its name: its device and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the identity of an open file; `None` if it is not a regular file, but for example a terminal or a pipe.
    pub fn of_open(file: impl AsFd) -> Option<Self> {
        fstat(file).ok().and_then(|found| Self::of_regular(&found))
    }

    /// Returns the identity of the file at a path; `None` if there is no regular file.
    pub fn at(path: &Path) -> Option<Self> {
        stat(path).ok().and_then(|found| Self::of_regular(&found))
    }

    fn of_regular(found: &Stat) -> Option<Self> {
        let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        is_regular.then(|| Self::from(found))
    }
}

impl From<&Stat> for FileId {
    // The types differ between systems.
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless, clippy::cast_sign_loss)]
    fn from(found: &Stat) -> Self {
        Self { device: found.st_dev as u64, inode: found.st_ino as u64 }
    }
}

/// The maximum number of links that are followed in one path.
const MAX_LINKS: usize = 40;

/// Resolves an output path inside a workspace; `None` if it is elsewhere.
///
/// # Errors
///
/// Fails if the path contains a link inside the workspace.
pub fn resolve_inside(workspace: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let Ok(workspace) = workspace.canonicalize() else { return Ok(None) };
    let absolute = std::path::absolute(path)?;
    let mut rest = parts_from_the_end(&absolute);
    let (mut place, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = rest.pop() {
        if part == ".." {
            place.pop();
            continue;
        }
        let next = place.join(&part);
        let Ok(target) = fs::read_link(&next) else {
            place = next;
            continue;
        };
        if place.starts_with(&workspace) {
            let text =
                format!("{} is a link inside the workspace, which is not followed", next.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many links"));
        }
        if target.is_absolute() {
            place = PathBuf::from("/");
        }
        rest.extend(parts_from_the_end(&target));
    }
    Ok(place.starts_with(&workspace).then_some(place))
}

/// Opens a path that [`resolve_inside`] has returned for writing. Links that have appeared in it since are not
/// followed, and a named pipe does not block.
///
/// # Errors
///
/// Fails if the file cannot be opened, the path contains a link, or it is neither a regular file nor a folder.
pub fn open_without_links(path: &Path, flags: OFlags, mode: RawMode) -> io::Result<File> {
    let mode =
        if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(mode) } else { Mode::empty() };
    let file = open_file(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, mode)?;
    let meta = file.metadata()?;
    if meta.is_file() || meta.is_dir() {
        return Ok(file);
    }
    let text = format!("{} is not a regular file", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn open_file(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, ResolveFlags, openat2};
        match openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS) {
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            opened => return Ok(File::from(opened?)),
        }
    }
    Ok(File::from(rustix::fs::open(path, flags | OFlags::NOFOLLOW, mode)?))
}

/// Opens a file of the user for appending: any file elsewhere, and a file in the workspace without a link of the
/// workspace in its path.
///
/// # Errors
///
/// Fails if the file cannot be opened, or its path contains a link inside the workspace.
pub fn open_for_append(workspace: &Path, path: &Path) -> io::Result<File> {
    match resolve_inside(workspace, path)? {
        Some(path) => {
            open_without_links(&path, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND, 0o666)
        }
        None => open_anywhere(path, File::options().create(true).append(true)),
    }
}

/// Opens a file of the user for writing, at any location. A named pipe without a reader does not block.
///
/// # Errors
///
/// Fails if the file cannot be opened.
pub fn open_anywhere(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    // Writes wait for a slow reader.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn parts_from_the_end(path: &Path) -> Vec<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_of_the_user_are_followed_and_those_of_the_workspace_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let workspace = base.join("w");
        fs::create_dir_all(workspace.join("d")).unwrap();
        fs::create_dir(base.join("home")).unwrap();
        symlink(base.join("home"), workspace.join("out")).unwrap();
        symlink(base.join("home/rc"), workspace.join("log")).unwrap();
        symlink(&workspace, base.join("link")).unwrap();
        symlink("../w/d", base.join("home/d")).unwrap();
        let inside =
            |path: &str| resolve_inside(&workspace, &base.join(path)).map_err(|e| e.kind());
        assert_eq!(inside("w/d/new"), Ok(Some(workspace.join("d/new"))));
        assert_eq!(inside("link/d/../new"), Ok(Some(workspace.join("new"))));
        assert_eq!(inside("home/d/new"), Ok(Some(workspace.join("d/new"))));
        assert_eq!(inside("home/new"), Ok(None));
        for path in ["w/out/new", "w/log", "link/log", "link/d/../out/x"] {
            assert_eq!(inside(path), Err(io::ErrorKind::PermissionDenied), "{path}");
        }
        assert!(open_for_append(&workspace, &workspace.join("log")).is_err());
        assert!(!base.join("home/rc").exists());
        open_for_append(&workspace, &workspace.join("d/plain")).unwrap();
        // Replaced between check and open.
        for path in ["log", "out/x"] {
            let flags = OFlags::WRONLY | OFlags::CREATE;
            assert!(open_without_links(&workspace.join(path), flags, 0o600).is_err());
        }
        // Without a reader, opening would block; with one, it would receive the output.
        let pipe = workspace.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(open_for_append(&workspace, &pipe).is_err());
        let elsewhere = open_for_append(&base.join("home"), &pipe).unwrap_err();
        assert_eq!(elsewhere.raw_os_error(), Some(rustix::io::Errno::NXIO.raw_os_error()));
        let _reader = File::from(
            rustix::fs::open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap(),
        );
        assert!(open_for_append(&workspace, &pipe).is_err());
    }
}
