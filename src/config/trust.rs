//! The folders that the user trusts.
//!
//! A text file in the state folder, a path on each line. It has the paths with all links resolved, so that a link to a
//! trusted folder is trusted, and what a link is turned to later is not.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::file::{self, Author, Unreadable};

/// The folders that the user trusts.
#[derive(Clone, Debug)]
pub struct TrustStore {
    file: PathBuf,
}

/// Why trust could not be looked up or changed.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The list could not be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The list could not be written.
    #[error("could not write {}: {}", .0.display(), .1)]
    Unwritable(PathBuf, #[source] io::Error),
    /// The folder is none, or cannot be written on one line.
    #[error("could not trust {}: {}", .0.display(), .1)]
    Folder(PathBuf, String),
}

impl TrustStore {
    /// Returns the store of a state folder.
    pub fn new(state: &Path) -> Self {
        Self { file: state.join("trusted_folders") }
    }

    /// Returns the file, for people.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Returns whether a folder is trusted. Trust in a folder says nothing about the folders in it.
    ///
    /// # Errors
    ///
    /// Fails when the list is there and cannot be relied on.
    pub fn contains(&self, folder: &Path) -> Result<bool, TrustError> {
        let list = self.list()?;
        Ok(line(folder).is_ok_and(|name| list.contains(&name)))
    }

    /// Trusts a folder.
    ///
    /// # Errors
    ///
    /// Fails when there is no such folder, or the list cannot be written.
    pub fn add(&self, folder: &Path) -> Result<(), TrustError> {
        let name = line(folder)?;
        if self.list()?.contains(&name) {
            return Ok(());
        }
        let failed = |error| TrustError::Unwritable(self.file.clone(), error);
        if let Some(state) = self.file.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(failed)?;
        }
        // One short write at the end is whole, whoever else writes at the same time.
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.file)
            .map_err(failed)?;
        file.write_all(format!("{name}\n").as_bytes()).map_err(failed)
    }

    /// Trusts a folder no more; one that was not trusted stays so.
    ///
    /// # Errors
    ///
    /// Fails when the list cannot be written.
    pub fn remove(&self, folder: &Path) -> Result<(), TrustError> {
        // A folder that is gone is on the list by its name alone.
        let name = line(folder).unwrap_or_else(|_| folder.display().to_string());
        let before = self.list()?;
        if !before.contains(&name) {
            return Ok(());
        }
        let failed = |error| TrustError::Unwritable(self.file.clone(), error);
        let rest = before.iter().filter(|other| **other != name);
        let after = rest.fold(String::new(), |text, other| text + other + "\n");
        let folder = self.file.parent().unwrap_or_else(|| Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(after.as_bytes()).map_err(failed)?;
        file.persist(&self.file).map(|_| ()).map_err(|error| failed(error.error))
    }

    /// Returns the trusted folders.
    ///
    /// # Errors
    ///
    /// Fails when the list is there and cannot be relied on.
    pub fn list(&self) -> Result<Vec<String>, TrustError> {
        let document = file::read(&self.file, Author::Us)?;
        let lines = document.iter().flat_map(|document| document.text().lines());
        Ok(lines.filter(|line| line.starts_with('/')).map(str::to_owned).collect())
    }
}

/// Returns a folder as the list has it.
fn line(folder: &Path) -> Result<String, TrustError> {
    let wrong = |what: String| TrustError::Folder(folder.to_owned(), what);
    let resolved = folder.canonicalize().map_err(|error| wrong(error.to_string()))?;
    match resolved.to_str() {
        _ if !resolved.is_dir() => Err(wrong("it is not a folder".to_owned())),
        Some(text) if !text.contains('\n') => Ok(text.to_owned()),
        _ => Err(wrong("its name cannot be written on one line".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn store() -> (tempfile::TempDir, TrustStore, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::create_dir_all(work.join("below")).unwrap();
        let store = TrustStore::new(&folder.path().join("state/architect"));
        (folder, store, work)
    }

    #[test]
    fn trust_is_given_kept_and_taken_back() {
        let (_folder, store, work) = store();
        assert!(!store.contains(&work).unwrap());
        store.add(&work).unwrap();
        store.add(&work).unwrap();
        assert!(store.contains(&work).unwrap());
        assert_eq!(store.list().unwrap().len(), 1);
        assert!(!store.contains(&work.join("below")).unwrap());
        store.remove(&work).unwrap();
        assert!(!store.contains(&work).unwrap());
        let mode = fs::metadata(store.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_link_is_trusted_as_far_as_its_target_is() {
        let (folder, store, work) = store();
        let link = folder.path().join("link");
        symlink(&work, &link).unwrap();
        store.add(&link).unwrap();
        assert!(store.contains(&work).unwrap() && store.contains(&link).unwrap());
        fs::remove_file(&link).unwrap();
        symlink(work.join("below"), &link).unwrap();
        assert!(!store.contains(&link).unwrap());
    }

    #[test]
    fn a_list_that_everybody_can_write_is_not_relied_on() {
        let (_folder, store, work) = store();
        store.add(&work).unwrap();
        fs::set_permissions(store.path(), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(store.contains(&work).is_err());
    }
}
