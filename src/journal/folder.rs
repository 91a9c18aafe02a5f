//! Folders that only the user can access.

use std::fs::{self, Permissions, ReadDir};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::Durability;
use super::error::{IoContext, JournalError, Result};
use crate::workspace::create_durable_folder;

/// Creates a folder that only the user can access; with [`Durability::Full`], new folders are durable when this returns.
///
/// Missing parents are created. A symbolic link or a folder of another user is rejected, because its contents would not
/// be under the user's control. If other users can access the folder, their access is removed.
pub(super) fn create_durable(path: &Path, durability: Durability) -> Result<()> {
    create_durable_folder(path, durability)?;
    let found = fs::symlink_metadata(path).io_context("inspect", path)?;
    let untrusted = |reason| Err(JournalError::UntrustedFolder { path: path.to_owned(), reason });
    if found.is_symlink() {
        return untrusted("is a symbolic link");
    }
    if !found.is_dir() {
        return untrusted("is not a folder");
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return untrusted("belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        log::warn!("{} was open to others; closing it", path.display());
        fs::set_permissions(path, Permissions::from_mode(0o700))
            .io_context("close to others", path)?;
    }
    Ok(())
}

/// The names of architect's own entries in its state folder.
const OWN_ENTRIES: &str = "sessions workspaces caches tmp trusted_folders worktrees";

/// Rejects a folder that other users can access and that has contents, but none of architect's: it was created for
/// another purpose.
pub(super) fn refuse_shared(path: &Path) -> Result<()> {
    let is_open = fs::symlink_metadata(path).is_ok_and(|found| found.mode() & 0o077 != 0);
    let is_own = || OWN_ENTRIES.split(' ').any(|name| path.join(name).exists());
    let is_in_use = || read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if is_open && !is_own() && is_in_use() {
        let reason = "is open to others and has other files; name a folder for sessions alone";
        return Err(JournalError::UntrustedFolder { path: path.to_owned(), reason });
    }
    Ok(())
}

/// Lists a folder, and retries if a signal interrupts the call.
pub(super) fn read_dir(path: &Path) -> io::Result<ReadDir> {
    loop {
        match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            listed => return listed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_folder_that_is_missing_is_made_for_the_user_alone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b");
        create_durable(&path, Durability::Full).unwrap();
        assert_eq!((mode(&path), mode(&temp.path().join("a"))), (0o700, 0o700));
    }

    /// Fault S7.
    #[test]
    fn a_folder_that_is_open_to_others_is_closed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("open");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        create_durable(&path, Durability::Full).unwrap();
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_folder_of_something_else_is_not_closed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("open");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        refuse_shared(&path).unwrap();
        fs::write(path.join("file"), "").unwrap();
        let refused = refuse_shared(&path).unwrap_err().to_string();
        assert!(refused.contains("for sessions alone"), "{refused}");
        fs::create_dir(path.join("caches")).unwrap();
        refuse_shared(&path).unwrap();
    }

    /// Fault S7.
    #[test]
    fn a_link_is_refused_and_so_is_a_file() {
        let temp = tempfile::tempdir().unwrap();
        let (target, link, file) =
            (temp.path().join("target"), temp.path().join("link"), temp.path().join("file"));
        fs::create_dir(&target).unwrap();
        symlink(&target, &link).unwrap();
        fs::write(&file, "").unwrap();
        assert!(
            create_durable(&link, Durability::Full)
                .unwrap_err()
                .to_string()
                .ends_with("link is a symbolic link")
        );
        assert!(create_durable(&file, Durability::Full).is_err());
    }
}
