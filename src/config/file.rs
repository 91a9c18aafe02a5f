//! Reading a file that somebody else may have written, or put there instead of a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use thiserror::Error;

use super::origin::Document;

/// The largest configuration file that is read.
const LARGEST: u64 = 1 << 20;

/// Why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// It is not there.
    #[error("could not find {}", .0.display())]
    Missing(PathBuf),
    /// The system refuses.
    #[error("could not read {}: {}", .0.display(), .1)]
    Io(PathBuf, String),
    /// It is a folder, a pipe, a device.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// It is larger than any configuration.
    #[error("{} is larger than {LARGEST} bytes", .0.display())]
    TooLarge(PathBuf),
    /// It is not text.
    #[error("{} is not UTF-8 text (byte {})", .0.display(), .1)]
    NotText(PathBuf, usize),
    /// Others could have written it.
    #[error("{} can be written by every user of this machine", .0.display())]
    WorldWritable(PathBuf),
    /// It belongs to somebody else.
    #[error("{} belongs to another user (uid {})", .0.display(), .1)]
    Foreign(PathBuf, u32),
}

/// Who may have written a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// The user of this process, or the system's administrator.
    Us,
    /// Whoever; but not everybody.
    NotEverybody,
    /// Whoever.
    Anybody,
}

/// Reads a text file; none when there is no such file.
pub(super) fn read(path: &Path, author: Author) -> Result<Option<Arc<Document>>, Unreadable> {
    let failed = |error: &io::Error| Unreadable::Io(path.to_owned(), error.to_string());
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let data = file.metadata().map_err(|error| failed(&error))?;
    if !data.is_file() {
        return Err(Unreadable::NotAFile(path.to_owned()));
    }
    check_author(path, author, data.mode(), data.uid())?;
    let mut bytes = Vec::new();
    // One byte more tells a file that is too large, also when it grows meanwhile.
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(Unreadable::TooLarge(path.to_owned()));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| Unreadable::NotText(path.to_owned(), error.utf8_error().valid_up_to()))?;
    Ok(Some(Document::new(path.to_owned(), &text)))
}

/// Reads a text file that has to be there.
pub(super) fn read_named(path: &Path, author: Author) -> Result<Arc<Document>, Unreadable> {
    read(path, author)?.ok_or_else(|| Unreadable::Missing(path.to_owned()))
}

/// Opens without waiting for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn check_author(path: &Path, author: Author, mode: u32, owner: u32) -> Result<(), Unreadable> {
    let me = rustix::process::geteuid().as_raw();
    if author != Author::Anybody && mode & 0o002 != 0 {
        Err(Unreadable::WorldWritable(path.to_owned()))
    } else if author == Author::Us && owner != me && owner != 0 {
        Err(Unreadable::Foreign(path.to_owned(), owner))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn text(path: &Path) -> Result<Option<String>, Unreadable> {
        read(path, Author::Us).map(|found| found.map(|document| document.text().to_owned()))
    }

    #[test]
    fn an_absent_file_is_none_and_a_link_to_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("b"));
        assert_eq!(text(&file).unwrap(), None);
        assert_eq!(text(&file.join("below")).unwrap(), None);
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(text(&link).unwrap().as_deref(), Some("x"));
        assert_eq!(text(&file.join("below")).unwrap(), None);
    }

    /// Fault K6: none of these blocks, and each says what it is.
    #[test]
    fn what_is_no_text_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert!(matches!(text(folder.path()), Err(Unreadable::NotAFile(_))));
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(matches!(text(&fifo), Err(Unreadable::NotAFile(_))));
        File::create(&path).unwrap().set_len(1 << 30).unwrap();
        assert!(matches!(text(&path), Err(Unreadable::TooLarge(_))));
        fs::write(&path, b"a = \"\xff\"").unwrap();
        assert_eq!(text(&path), Err(Unreadable::NotText(path, 5)));
    }

    /// Fault K7.
    #[test]
    fn what_others_could_have_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(text(&path), Err(Unreadable::WorldWritable(_))));
        assert!(read(&path, Author::NotEverybody).is_err());
        assert!(read(&path, Author::Anybody).is_ok());
        let me = rustix::process::geteuid().as_raw();
        assert!(check_author(&path, Author::Us, 0o644, me).is_ok());
        assert!(check_author(&path, Author::Us, 0o644, 0).is_ok());
        assert_eq!(
            check_author(&path, Author::Us, 0o644, me + 1),
            Err(Unreadable::Foreign(path.clone(), me + 1))
        );
        assert!(check_author(&path, Author::NotEverybody, 0o644, me + 1).is_ok());
    }
}
