//! The exclusive right to create a session: held from before anything is written until the journal has its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::error::{IoContext, JournalError};
use super::file_journal::lock;
use super::folder;
use super::session_id::SessionId;

/// The exclusive right of this process to create or import a session with this id.
///
/// It is a lock of the pid file in the folder beside the journal, so it ends with the process. It keeps two processes
/// from writing into that folder at the same time; [`publish`] decides which journal gets the name.
#[derive(Debug)]
pub(super) struct SessionClaim(File);

impl SessionClaim {
    /// Takes the right, and creates the folder.
    ///
    /// # Errors
    ///
    /// Fails if another process has it, and on an I/O error.
    pub(super) fn acquire(session: SessionId, beside: &Path) -> Result<Self, JournalError> {
        folder::create_private(beside)?;
        let path = beside.join("pid");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        let file = file.open(&path).io_context("open", &path)?;
        if !lock(&file, &path)? {
            let text = fs::read_to_string(&path).unwrap_or_default();
            return Err(JournalError::Busy { session, pid: text.trim().parse().ok() });
        }
        let claim = Self(file);
        claim.write_owner().io_context("write", &path)?;
        Ok(claim)
    }

    /// Writes the id of this process, for messages of other processes.
    fn write_owner(&self) -> io::Result<()> {
        self.0.set_len(0)?;
        (&self.0).write_all(format!("{}\n", std::process::id()).as_bytes())
    }
}

/// Renames a file, unless the new name is taken.
///
/// # Errors
///
/// Fails with [`io::ErrorKind::AlreadyExists`] if the name is taken.
pub(super) fn publish(from: &Path, to: &Path) -> io::Result<()> {
    match rename_no_replace(from, to) {
        // Not every file system can do this atomically; others have hard links.
        Err(error) if is_unsupported(&error) => fs::hard_link(from, to).map(|()| {
            let _ = fs::remove_file(from);
        }),
        renamed => renamed,
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_no_replace(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let rename = || renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
    Ok(rustix::io::retry_on_intr(rename)?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_no_replace(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once_however_the_file_system_does_it() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        for name in ["a", "b"] {
            fs::write(path(name), name).unwrap();
        }
        publish(&path("a"), &path("name")).unwrap();
        let error = publish(&path("b"), &path("name")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(path("name")).unwrap(), "a");
        assert!(path("b").exists() && !path("a").exists());
    }
}
