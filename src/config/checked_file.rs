//! Reading files that another user may have written, or replaced by something that is not a file.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use thiserror::Error;

use super::origin::ConfigDocument;

/// The size above which a configuration file is rejected.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// An error in reading a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigFileError {
    /// The file does not exist.
    #[error("could not find {}", .0.display())]
    Missing(PathBuf),
    /// The path is a link to a file that does not exist.
    #[error("{} is a link to a file that does not exist", .0.display())]
    Dangling(PathBuf),
    /// The path leads out of the project by a link.
    #[error("{} is a link out of the project, and is not followed", .0.display())]
    LinkOut(PathBuf),
    /// The file could not be opened or read.
    #[error("could not read {}: {}", .0.display(), .1)]
    Io(PathBuf, String),
    /// The path is a folder, a pipe or a device.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file is larger than a configuration can be.
    #[error("{} is larger than {MAX_FILE_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    /// The file is not UTF-8; the offset of the first invalid byte.
    #[error("{} is not UTF-8 text (byte {})", .0.display(), .1)]
    NotUtf8(PathBuf, usize),
    /// Any user of the machine can write the file.
    #[error("{} can be written by every user of this machine", .0.display())]
    WorldWritable(PathBuf),
    /// The file belongs to another user.
    #[error("{} belongs to another user (uid {})", .0.display(), .1)]
    OtherOwner(PathBuf, u32),
}

/// The owner of a file, which determines how far the file is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileOwner {
    /// The user: the file must belong to the user of this process, or to root.
    User,
    /// Any user, because the user of this process names the file. A file that every user can write is rejected.
    Named,
    /// Anyone who can write to the project.
    Project,
}

/// Returns whether the target of a project's file is in the project. A repository may contain a link to a secret of the
/// user, and an error shows the line that it is about.
fn is_in_project(path: &Path) -> bool {
    let own_folder = path.ancestors().skip(1).find(|it| it.ends_with(".architect"));
    let own_folder = own_folder.filter(|_| !path.ends_with(".mcp.json"));
    let project = own_folder.unwrap_or(path).parent().and_then(|it| it.canonicalize().ok());
    project.zip(path.canonicalize().ok()).is_some_and(|(project, real)| real.starts_with(project))
}

/// Reads a text file; `None` if there is no such file.
pub(super) fn read_file(
    path: &Path,
    owner: FileOwner,
) -> Result<Option<Arc<ConfigDocument>>, ConfigFileError> {
    let failed = |error: io::Error| ConfigFileError::Io(path.to_owned(), error.to_string());
    // With these flags, opening a pipe does not wait for its other end.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path);
    let file = match file.map_err(|error| (error.kind(), error)) {
        Ok(file) => file,
        Err((ErrorKind::NotFound, _)) if path.is_symlink() => {
            return Err(ConfigFileError::Dangling(path.to_owned()));
        }
        Err((ErrorKind::NotFound | ErrorKind::NotADirectory, _)) => return Ok(None),
        Err((_, error)) => return Err(failed(error)),
    };
    let data = file.metadata().map_err(failed)?;
    if !data.is_file() {
        return Err(ConfigFileError::NotAFile(path.to_owned()));
    }
    check_owner(path, owner, data.mode(), data.uid())?;
    if owner == FileOwner::Project && !is_in_project(path) {
        return Err(ConfigFileError::LinkOut(path.to_owned()));
    }
    let mut bytes = Vec::new();
    // Reading one more byte detects a file that is too large, even if it grows meanwhile.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigFileError::TooLarge(path.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        ConfigFileError::NotUtf8(path.to_owned(), error.utf8_error().valid_up_to())
    })?;
    Ok(Some(ConfigDocument::new(path.to_owned(), &text)))
}

fn check_owner(path: &Path, owner: FileOwner, mode: u32, uid: u32) -> Result<(), ConfigFileError> {
    let me = rustix::process::geteuid().as_raw();
    if owner != FileOwner::Project && mode & 0o002 != 0 {
        Err(ConfigFileError::WorldWritable(path.to_owned()))
    } else if owner == FileOwner::User && uid != me && uid != 0 {
        Err(ConfigFileError::OtherOwner(path.to_owned(), uid))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn read_text(path: &Path) -> Result<Option<String>, ConfigFileError> {
        read_file(path, FileOwner::User)
            .map(|found| found.map(|document| document.text().to_owned()))
    }

    #[test]
    fn a_missing_file_is_none_and_a_link_to_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("b"));
        assert_eq!(read_text(&file).unwrap(), None);
        assert_eq!(read_text(&file.join("below")).unwrap(), None);
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_text(&link).unwrap().as_deref(), Some("x"));
        assert_eq!(read_text(&file.join("below")).unwrap(), None);
    }

    /// Fault K6: none of these blocks.
    #[test]
    fn anything_but_a_text_file_is_rejected_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert!(matches!(read_text(folder.path()), Err(ConfigFileError::NotAFile(_))));
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(matches!(read_text(&fifo), Err(ConfigFileError::NotAFile(_))));
        File::create(&path).unwrap().set_len(1 << 30).unwrap();
        assert!(matches!(read_text(&path), Err(ConfigFileError::TooLarge(_))));
        fs::write(&path, b"a = \"\xff\"").unwrap();
        assert_eq!(read_text(&path), Err(ConfigFileError::NotUtf8(path, 5)));
    }

    /// Fault K7.
    #[test]
    fn a_file_that_others_can_write_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(read_text(&path), Err(ConfigFileError::WorldWritable(_))));
        assert!(read_file(&path, FileOwner::Named).is_err());
        assert!(read_file(&path, FileOwner::Project).is_ok());
        let me = rustix::process::geteuid().as_raw();
        assert!(check_owner(&path, FileOwner::User, 0o644, me).is_ok());
        assert!(check_owner(&path, FileOwner::User, 0o644, 0).is_ok());
        assert_eq!(
            check_owner(&path, FileOwner::User, 0o644, me + 1),
            Err(ConfigFileError::OtherOwner(path.clone(), me + 1))
        );
        assert!(check_owner(&path, FileOwner::Named, 0o644, me + 1).is_ok());
    }
}
