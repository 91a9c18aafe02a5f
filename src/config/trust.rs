//! The folders that the user trusts.
//!
//! The list is a text file in the state folder with a path on each line. Links in the paths are resolved, so that a
//! link to a trusted folder is trusted, and its later targets are not.
//!
//! Beside it, each trusted folder has a file with the contents that the user has trusted: those of the project's
//! configuration, its servers, profiles and agents, which determine what is run and what is sent. If one of them
//! changes, the folder is not trusted until the user has seen the change. Removing a file changes nothing, since a
//! removed file has no effect.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::checked_file::{self, ConfigFileError, FileOwner};
use crate::types::{Durability, hex};
use crate::workspace::{IoContext, IoError, create_private_folder, replace_file};

/// The list of trusted folders.
#[derive(Clone, Debug)]
pub struct TrustStore {
    file: PathBuf,
}

/// The trusted contents of a folder.
#[derive(Serialize, Deserialize)]
struct Trusted {
    folder: String,
    /// The contents of files, by their path relative to the folder.
    files: BTreeMap<String, String>,
}

/// A file of a trusted folder whose contents differ from the trusted ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    /// The path, relative to the folder.
    pub path: String,
    /// The trusted contents; `None` if the file did not exist.
    pub trusted: Option<String>,
    /// The current contents.
    pub now: String,
}

/// An error in reading or changing the list of trusted folders.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The list could not be read.
    #[error(transparent)]
    ReadFailed(#[from] ConfigFileError),
    /// The list could not be written.
    #[error(transparent)]
    WriteFailed(#[from] IoError),
    /// The path is not a folder, or cannot be written on one line.
    #[error("could not trust {}: {}", .0.display(), .1)]
    InvalidFolder(PathBuf, String),
}

impl TrustStore {
    /// Returns the list in a state folder.
    pub fn new(state: &Path) -> Self {
        Self { file: state.join("trusted_folders") }
    }

    /// Returns whether a folder is trusted. The subfolders of a trusted folder are not.
    ///
    /// # Errors
    ///
    /// Fails if the list exists and is not safe to read.
    pub fn contains(&self, folder: &Path) -> Result<bool, TrustError> {
        let list = self.list()?;
        Ok(canonical_line(folder).is_ok_and(|name| list.contains(&name)))
    }

    /// Trusts a folder with its current configuration.
    ///
    /// # Errors
    ///
    /// Fails if there is no such folder, or the list cannot be written.
    pub fn add(&self, folder: &Path) -> Result<(), TrustError> {
        let name = canonical_line(folder)?;
        let _lock = self.lock()?;
        self.record(&name, steering(folder))?;
        if self.list()?.contains(&name) {
            return Ok(());
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.file);
        let written = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
        Ok(written.io_context("write", &self.file)?)
    }

    /// Returns the files of a trusted folder whose contents differ from the trusted ones; `None` if no contents were
    /// recorded, as by older versions.
    ///
    /// # Errors
    ///
    /// Fails if the record exists and is not safe to read.
    pub fn changed(&self, folder: &Path) -> Result<Option<Vec<ChangedFile>>, TrustError> {
        let Some(trusted) = self.trusted(&canonical_line(folder)?)? else { return Ok(None) };
        let changed = steering(folder).into_iter().filter_map(|(path, now)| {
            let trusted = trusted.files.get(&path).cloned();
            (trusted.as_ref() != Some(&now)).then_some(ChangedFile { path, trusted, now })
        });
        Ok(Some(changed.collect()))
    }

    /// Trusts these changes with the contents that were shown.
    ///
    /// # Errors
    ///
    /// Fails if the record cannot be read or written.
    pub fn accept(&self, folder: &Path, changed: &[ChangedFile]) -> Result<(), TrustError> {
        let name = canonical_line(folder)?;
        let _lock = self.lock()?;
        let mut files = self.trusted(&name)?.map(|trusted| trusted.files).unwrap_or_default();
        files.extend(changed.iter().map(|file| (file.path.clone(), file.now.clone())));
        self.record(&name, files)
    }

    fn trusted(&self, name: &str) -> Result<Option<Trusted>, TrustError> {
        let path = self.record_of(name);
        let Some(document) = checked_file::read_file(&path, FileOwner::User)? else {
            return Ok(None);
        };
        let trusted = serde_json::from_str::<Trusted>(document.text());
        let trusted = trusted.map_err(|error| ConfigFileError::Io(path, error.to_string()))?;
        Ok((trusted.folder == name).then_some(trusted))
    }

    fn record(&self, name: &str, files: BTreeMap<String, String>) -> Result<(), TrustError> {
        let trusted = Trusted { folder: name.to_owned(), files };
        let path = self.record_of(name);
        let write = || {
            create_private_folder(path.parent().unwrap_or(Path::new(".")))?;
            replace_file(&path, &serde_json::to_vec(&trusted)?, Durability::Full)
        };
        Ok(write().io_context("write", &path)?)
    }

    fn record_of(&self, name: &str) -> PathBuf {
        let digest = Sha256::digest(name.as_bytes());
        self.file.with_file_name("trusted_files").join(hex(&digest[..16]) + ".json")
    }

    /// Removes a folder from the trusted folders, if it is one of them.
    ///
    /// # Errors
    ///
    /// Fails if the list cannot be written.
    pub fn remove(&self, folder: &Path) -> Result<(), TrustError> {
        // The path of a removed folder can't be resolved.
        let name = canonical_line(folder).unwrap_or_else(|_| folder.display().to_string());
        if !self.list()?.contains(&name) {
            return Ok(());
        }
        let _lock = self.lock()?;
        let before = self.list()?;
        let rest = before.iter().filter(|other| **other != name);
        let after = rest.fold(String::new(), |text, other| text + other + "\n");
        replace_file(&self.file, after.as_bytes(), Durability::Full)
            .io_context("write", &self.file)?;
        // The record is removed last: a listed folder without a record would be trusted with whatever it contains then.
        let _ = fs::remove_file(self.record_of(&name));
        Ok(())
    }

    /// Takes the lock against other changes of the list or a record.
    fn lock(&self) -> Result<File, TrustError> {
        Ok(lock_folder_of(&self.file).io_context("write", &self.file)?)
    }

    /// Returns the trusted folders.
    ///
    /// # Errors
    ///
    /// Fails if the list exists and is not safe to read.
    pub fn list(&self) -> Result<Vec<String>, TrustError> {
        let document = checked_file::read_file(&self.file, FileOwner::User)?;
        let lines = document.iter().flat_map(|document| document.text().lines());
        Ok(lines.filter(|line| line.starts_with('/')).map(str::to_owned).collect())
    }
}

/// Locks the folder of a file until the result is dropped. Creates the folder if it is missing; only the user can read
/// it.
pub(super) fn lock_folder_of(path: &Path) -> io::Result<File> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    create_private_folder(folder)?;
    let folder = File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

/// Returns the contents of a project's configuration files, by path. Trusting a folder records all of them.
fn steering(folder: &Path) -> BTreeMap<String, String> {
    let below = |name: &str| {
        let entries = fs::read_dir(folder.join(name)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.map(|entry| format!("{name}/{entry}")).collect::<Vec<_>>()
    };
    let files = [".mcp.json", ".architect/config.toml"].map(str::to_owned).into_iter();
    let files = files.chain(below(".architect/profiles")).chain(below(".architect/agents"));
    let read = files.filter_map(|path| {
        // Unreadable files count as absent, and as changed once they become readable.
        let document = checked_file::read_file(&folder.join(&path), FileOwner::Project).ok()??;
        Some((path, document.text().to_owned()))
    });
    read.collect()
}

/// Returns the path of a folder in the form used in the list.
fn canonical_line(folder: &Path) -> Result<String, TrustError> {
    let wrong = |what: String| TrustError::InvalidFolder(folder.to_owned(), what);
    let resolved = folder.canonicalize().map_err(|error| wrong(error.to_string()))?;
    match resolved.to_str() {
        _ if !resolved.is_dir() => Err(wrong("it is not a folder".to_owned())),
        Some(text) if !text.contains('\n') => Ok(text.to_owned()),
        _ => Err(wrong("its name cannot be written on one line".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
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
    fn folders_are_added_and_removed() {
        let (_folder, store, work) = store();
        assert!(!store.contains(&work).unwrap());
        store.add(&work).unwrap();
        store.add(&work).unwrap();
        assert!(store.contains(&work).unwrap());
        assert_eq!(store.list().unwrap().len(), 1);
        assert!(!store.contains(&work.join("below")).unwrap());
        store.remove(&work).unwrap();
        assert!(!store.contains(&work).unwrap());
        let mode = fs::metadata(&store.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn no_change_of_the_list_is_lost_to_another_one() {
        let (folder, store, _) = store();
        let works: Vec<_> = (0..24).map(|number| folder.path().join(number.to_string())).collect();
        works.iter().for_each(|work| fs::create_dir(work).unwrap());
        let (old, new) = works.split_at(12);
        old.iter().for_each(|work| store.add(work).unwrap());
        std::thread::scope(|scope| {
            for (old, new) in old.iter().zip(new) {
                scope.spawn(|| store.remove(old).unwrap());
                scope.spawn(|| store.add(new).unwrap());
            }
        });
        let is_trusted = |work: &PathBuf| store.contains(work).unwrap();
        assert!(!old.iter().any(is_trusted) && new.iter().all(is_trusted));
    }

    #[test]
    fn changes_are_reported_until_they_are_accepted() {
        let (_folder, store, work) = store();
        fs::create_dir_all(work.join(".architect/agents")).unwrap();
        let write = |name: &str, text: &str| fs::write(work.join(name), text).unwrap();
        write(".architect/config.toml", "a");
        store.add(&work).unwrap();
        assert_eq!(store.changed(&work).unwrap().unwrap(), []);
        write(".architect/config.toml", "b");
        write(".architect/agents/x.md", "x");
        write(".mcp.json", "{}");
        write("other", "x");
        let changed = store.changed(&work).unwrap().unwrap();
        let summary = |file: &ChangedFile| (file.path.clone(), file.trusted.is_some());
        let expected = [
            (".architect/agents/x.md", false),
            (".architect/config.toml", true),
            (".mcp.json", false),
        ];
        let expected = expected.map(|(path, was_there)| (path.to_owned(), was_there));
        assert_eq!(changed.iter().map(summary).collect::<Vec<_>>(), expected);
        // The shown contents are accepted, not those that the file has by now.
        write(".mcp.json", "[]");
        store.accept(&work, &changed).unwrap();
        assert_eq!(store.changed(&work).unwrap().unwrap()[0].now, "[]");
        fs::remove_file(work.join(".mcp.json")).unwrap();
        assert_eq!(store.changed(&work).unwrap().unwrap(), []);
        store.remove(&work).unwrap();
        assert_eq!(store.changed(&work).unwrap(), None);
    }

    #[test]
    fn a_link_is_trusted_if_its_target_is() {
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
    fn a_list_that_everyone_can_write_is_rejected() {
        let (_folder, store, work) = store();
        store.add(&work).unwrap();
        fs::set_permissions(&store.file, Permissions::from_mode(0o666)).unwrap();
        assert!(store.contains(&work).is_err());
    }
}
