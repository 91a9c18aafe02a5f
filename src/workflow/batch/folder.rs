//! The files of a batch.
//!
//! ```text
//!  DIR/coordination.jsonl   the owners of the cells, and the spent budget
//!      sessions/            the journals of the cells
//!      cells/SESSION.json   the result of a cell; with "checks" once it is complete
//!      cells/SESSION.setup  present once the setup of a cell is done; has the tree of the files after it
//!      patches/CELL.patch   the changes of a cell
//!      merge.json           of a comparison: the commit to merge, and the commit from which its branch began
//!      results.jsonl, predictions.jsonl, report.{md,html,json,xml}
//! ```

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::OFlags;
use serde_json::{Value, json};
use thiserror::Error;

use crate::journal::SessionId;
use crate::workspace::{IoContext, IoError, lock_within, open_parent};

/// Timeout for the lock of the results. The process that writes them may be suspended.
const RESULTS_LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Name of the lock file for writing the results.
const RESULTS_LOCK: &str = ".results.lock";

/// The folder of a batch.
#[derive(Clone, Debug)]
pub struct BatchFolder(PathBuf);

/// Name of the log with the owners of the cells.
pub(super) const LOG_FILE: &str = "coordination.jsonl";

/// Name of the file with the state of a merge.
const MERGE_FILE: &str = "merge.json";

/// Name of the folder with the patches of cells.
pub(super) const PATCHES: &str = "patches";

/// A file of a batch could not be read or written.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct BatchFileError(#[from] IoError);

/// Fails if a path is a link, since files below it would be written elsewhere.
pub(in crate::workflow) fn refuse_link(path: &Path) -> Result<(), BatchFileError> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let refused = || io::Error::other("there is a symbolic link of this name; remove it");
    Ok((!is_link).then_some(()).ok_or_else(refused).io_context("create", path)?)
}

impl BatchFolder {
    /// Creates the folder if it is missing.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be written.
    pub fn create(path: &Path) -> Result<Self, BatchFileError> {
        let folder = Self(path.to_owned());
        folder.check_log()?;
        for path in [folder.cells(), folder.0.join("patches")] {
            refuse_link(&path)?;
            fs::create_dir_all(&path).io_context("create", &path)?;
        }
        // The folder is not a part of the project in which it may be.
        let ignore = folder.0.join(".gitignore");
        match ignore.exists() {
            true => {}
            false => folder.write(&ignore, b"*\n")?,
        }
        Ok(folder)
    }

    /// Fails if the folder has results but no log: without the log of their cells, all cells would run again.
    fn check_log(&self) -> Result<(), BatchFileError> {
        let log = self.0.join(LOG_FILE);
        let problem = match fs::metadata(&log) {
            Ok(found) if found.len() > 0 => return Ok(()),
            Ok(_) => "empty",
            Err(_) => "missing",
        };
        let is_result =
            |entry: &fs::DirEntry| entry.path().extension().is_some_and(|it| it == "json");
        let mut entries = fs::read_dir(self.cells()).into_iter().flatten().flatten();
        if entries.any(|entry| is_result(&entry)) {
            Err(io::Error::other(format!(
                "it is {problem}, and there are results of cells; restore it, or use another folder"
            )))
            .io_context("read", &log)?;
        }
        Ok(())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn cells(&self) -> PathBuf {
        self.0.join("cells")
    }

    /// Returns the path of a cell's patch.
    pub(super) fn patch(&self, cell: &str) -> PathBuf {
        self.0.join(PATCHES).join(format!("{cell}.patch"))
    }

    fn result(&self, session: SessionId) -> PathBuf {
        self.cells().join(format!("{session}.json"))
    }

    fn evaluation(&self, session: SessionId) -> PathBuf {
        self.cells().join(format!("{session}.evaluation"))
    }

    fn setup(&self, session: SessionId) -> PathBuf {
        self.cells().join(format!("{session}.setup"))
    }

    /// Returns whether the result of a session is stored.
    pub fn has_result(&self, session: SessionId) -> bool {
        self.read_result(session).is_some()
    }

    /// Returns the stored result of a session, which may still be without its checks.
    pub(in crate::workflow) fn read_result(&self, session: SessionId) -> Option<Value> {
        let result: Value = serde_json::from_slice(&fs::read(self.result(session)).ok()?).ok()?;
        // The file may be a copy of another cell's.
        let is_own = result["session_id"].as_str().is_none_or(|id| id == session.to_string());
        (is_own && result.get("status").is_some()).then_some(result)
    }

    /// Stores the result of a session.
    pub(super) fn write_result(
        &self,
        session: SessionId,
        result: &Value,
    ) -> Result<(), BatchFileError> {
        self.write(&self.result(session), result.to_string().as_bytes())
    }

    /// Returns the tree after the setup of a session, if the setup is done. It is empty outside of a worktree.
    pub(super) fn read_setup(&self, session: SessionId) -> Option<String> {
        fs::read_to_string(self.setup(session)).ok()
    }

    /// Records that the setup of a session is done, with the tree after it.
    pub(super) fn write_setup(&self, session: SessionId, tree: &str) -> Result<(), BatchFileError> {
        self.write(&self.setup(session), tree.as_bytes())
    }

    /// Returns the session that evaluates the changes of this session. Later calls return the same one, so that an
    /// interrupted evaluation is resumed, and a finished one is not paid twice.
    pub(super) fn evaluation_session(
        &self,
        session: SessionId,
    ) -> Result<SessionId, BatchFileError> {
        if let Some(stored) = self.find_evaluation(session) {
            return Ok(stored);
        }
        let new = SessionId::generate();
        self.write(&self.evaluation(session), new.to_string().as_bytes())?;
        Ok(new)
    }

    /// Returns the session that evaluates the changes of this session, if the evaluation has begun.
    pub(super) fn find_evaluation(&self, session: SessionId) -> Option<SessionId> {
        fs::read_to_string(self.evaluation(session)).ok()?.parse().ok()
    }

    /// Waits until no other process writes the results of the batch, and locks them until the returned file is closed.
    /// So the last process that writes has read the results of all others. Without file locks, each process writes its
    /// own view.
    pub fn lock_results(&self) -> Option<fs::File> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        // If the folder is in the workspace, a command may have put a link there.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(self.0.join(RESULTS_LOCK)).ok()?;
        let is_locked = lock_within(&file, RESULTS_LOCK_TIMEOUT).unwrap_or(true);
        is_locked.then_some(file)
    }

    /// Records that a branch is about to be merged: the commit from which it began, and its tip.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be written.
    pub fn write_merge(&self, began_at: &str, tip: &str) -> Result<(), BatchFileError> {
        let merge = json!({"began_at": began_at, "tip": tip});
        self.write(&self.0.join(MERGE_FILE), merge.to_string().as_bytes())
    }

    /// Returns the commit from which the branch with the tip `tip` began, if the folder has recorded its merge.
    pub fn merged_from(path: &Path, tip: &str) -> Option<String> {
        let merge: Value = serde_json::from_slice(&fs::read(path.join(MERGE_FILE)).ok()?).ok()?;
        let began_at = merge["began_at"].as_str().filter(|_| merge["tip"] == tip);
        began_at.map(str::to_owned)
    }

    /// Replaces a file atomically: a reader finds either the old or the new content.
    pub(in crate::workflow) fn write(
        &self,
        path: &Path,
        content: &[u8],
    ) -> Result<(), BatchFileError> {
        self.write_parts(path, |file| file.write_all(content)).map(drop)
    }

    /// Replaces a file atomically with the output of `write`, and returns the new file.
    pub(super) fn write_parts(
        &self,
        path: &Path,
        write: impl FnOnce(&mut io::BufWriter<&fs::File>) -> io::Result<()>,
    ) -> Result<fs::File, BatchFileError> {
        let replace = || {
            let new = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.0)?;
            let mut writer = io::BufWriter::new(new.as_file());
            write(&mut writer)?;
            writer.flush()?;
            drop(writer);
            new.as_file().sync_data()?;
            let (file, new) = new.into_parts();
            // A command may have replaced an inner folder by a link.
            let inner = path.strip_prefix(&self.0).map_err(io::Error::other)?;
            let top = Dir::open_ambient_dir(&self.0, ambient_authority())?;
            let (folder, name) = open_parent(&top, inner)?;
            top.rename(new.file_name().unwrap_or_default(), &folder, name)?;
            io::Result::Ok(file)
        };
        Ok(replace().io_context("write", path)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The folder may be in a workspace, where commands can create links.
    #[test]
    fn no_link_in_the_folder_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        let folder = BatchFolder::create(&path("out")).unwrap();
        fs::create_dir(path("mine")).unwrap();
        fs::write(path("mine/file"), "mine").unwrap();
        let result = path("out/cells/x.json");
        folder.write(&result, b"new").unwrap();
        assert_eq!(fs::read_to_string(&result).unwrap(), "new");
        assert!(folder.lock_results().is_some());
        fs::remove_file(path("out").join(RESULTS_LOCK)).unwrap();
        symlink(path("mine/file"), path("out").join(RESULTS_LOCK)).unwrap();
        fs::rename(path("out/cells"), path("was")).unwrap();
        symlink(path("mine"), path("out/cells")).unwrap();
        assert!(folder.lock_results().is_none());
        assert!(folder.write(&result, b"new").is_err());
        let refused = BatchFolder::create(&path("out")).unwrap_err().to_string();
        assert!(refused.contains("cells: there is a symbolic link"), "{refused}");
        assert_eq!(fs::read_dir(path("mine")).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(path("mine/file")).unwrap(), "mine");
    }
}
