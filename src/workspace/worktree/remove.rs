//! Removal of worktrees, and completion of the operations of killed processes.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::changes::{WorktreeChanges, WorktreeState, nested_repository};
use super::error::WorktreeError;
use super::git::GitTree;
use super::merge_log::remove_temporary;
use super::record::{LockedRecord, WorktreePhase, WorktreeRecord, is_name, is_orphan};
use super::repository;
use super::tree_copy::remove_all;
use super::{
    CARRIED_EXTENSION, MANIFEST_EXTENSION, MERGE_EXTENSION, Worktree, Worktrees, examine,
    record_files, record_path,
};
use crate::workspace::open_folder::real_path;
use crate::workspace::{IoContext, IoError};

/// The extension of a worktree that is being removed. No path of a user leads there.
const REMOVED_EXTENSION: &str = "removing";

impl Worktrees {
    /// Ends the use of a worktree. Removes it, with its branch, if it is unchanged. Returns whether it stays.
    ///
    /// # Errors
    ///
    /// Fails if git or the system fails. The worktree then stays, or the next [`Worktrees::sweep`] finishes.
    pub fn finish(&self, worktree: Worktree) -> Result<bool, WorktreeError> {
        let Worktree { folder, mut record, locked, tree, .. } = worktree;
        let is_unchanged = |folder: &Path| {
            let tree = tree.as_ref().map(|tree| tree.in_folder(folder));
            let (state, _) = examine(&record, folder, tree.as_ref(), Some(locked.file()))?;
            Ok::<_, WorktreeError>(record.is_unused(&state.digest))
        };
        if is_unchanged(&folder)? {
            let hidden = move_away(&folder)?;
            // Changes in the meantime are work, too.
            let is_still_unchanged = is_unchanged(&hidden);
            if matches!(is_still_unchanged, Ok(true)) {
                self.remove_hidden(&folder, record, locked)?;
                return Ok(false);
            }
            move_back(&folder)?;
            // After an error, the next sweep checks again.
            is_still_unchanged?;
        }
        record.phase = WorktreePhase::Kept;
        locked.write(&record)?;
        Ok(true)
    }

    /// Removes a worktree and its branch.
    ///
    /// # Errors
    ///
    /// Fails if it has work and `force` is not set, and if git or the system fails.
    pub fn remove(&self, mut worktree: Worktree, force: bool) -> Result<(), WorktreeError> {
        if !force && let Some(loss) = self.loss(&worktree)? {
            return Err(WorktreeError::HasWork { name: worktree.record.name.clone(), loss });
        }
        worktree.keep_tip()?;
        let Worktree { folder, mut record, locked, .. } = worktree;
        remove_temporary(&mut record.leftovers);
        move_away(&folder)?;
        self.remove_hidden(&folder, record, locked)
    }

    /// Removes the remains of a worktree after an earlier removal. Returns `false` if there are none.
    ///
    /// # Errors
    ///
    /// Fails if git or the system fails.
    pub fn complete_removal(&self, workspace: &Path, name: &str) -> Result<bool, WorktreeError> {
        let folder = self.folder_of(workspace).join(name);
        let path = record_path(&folder);
        if !is_name(name) || !path.exists() {
            return Ok(false);
        }
        let Some(mut locked) = LockedRecord::lock_patiently(&path)? else { return Ok(false) };
        let is_removed = |phase| match phase {
            WorktreePhase::Creating | WorktreePhase::Removing => true,
            WorktreePhase::Applied => hidden_path(&folder).exists(),
            WorktreePhase::InUse | WorktreePhase::Kept => false,
        };
        match locked.read()?.filter(|record| is_removed(record.phase)) {
            Some(record) => self.discard(&folder, &record, locked).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns the changes that would be lost with a worktree; `None` if nothing would be lost.
    ///
    /// # Errors
    ///
    /// Fails if git or the system fails.
    pub fn loss(&self, worktree: &Worktree) -> Result<Option<String>, WorktreeError> {
        let Worktree { folder, record, locked, tree, .. } = worktree;
        let tree = tree.as_ref();
        let (state, changes) = examine(record, folder, tree, Some(locked.file()))?;
        if let Some(loss) = self.loss_of_work(record, folder, tree, &state, &changes)? {
            return Ok(Some(loss));
        }
        let nested = tree.map(|tree| nested_repository(tree, folder)).transpose()?.flatten();
        Ok(nested.map(|path| format!("the repository in {}", path.display())))
    }

    /// Returns the work that would be lost with a worktree in this state; `None` if no work would be lost.
    pub(super) fn loss_of_work(
        &self,
        record: &WorktreeRecord,
        folder: &Path,
        tree: Option<&GitTree>,
        state: &WorktreeState,
        changes: &WorktreeChanges,
    ) -> Result<Option<String>, WorktreeError> {
        match &state.digest {
            digest if record.has_work(digest) => Ok(Some(changes.to_string())),
            digest if record.start.as_ref() == Some(digest) => Ok(None),
            _ => self.loss_since_merge(record, folder, tree, state),
        }
    }

    /// Removes a worktree whose changes were applied. Its record stays until [`Worktrees::forget`].
    ///
    /// # Errors
    ///
    /// Fails if it has changed since, and if git or the system fails.
    pub fn retire(&self, mut worktree: Worktree) -> Result<(), WorktreeError> {
        let (changes, has_work) = worktree.changes()?;
        if has_work {
            worktree.record.phase = WorktreePhase::Kept;
            worktree.locked.write(&worktree.record)?;
            let name = worktree.record.name.clone();
            return Err(WorktreeError::HasWork { name, loss: changes.to_string() });
        }
        worktree.keep_tip()?;
        let Worktree { folder, mut record, locked, .. } = worktree;
        record.phase = WorktreePhase::Applied;
        locked.write(&record)?;
        move_away(&folder)?;
        self.remove_files(&folder, &record, &locked)
    }

    /// Removes the record of a worktree whose changes were applied, if there is one.
    ///
    /// # Errors
    ///
    /// Fails if the system fails.
    pub fn forget(&self, workspace: &Path, name: &str) -> Result<(), WorktreeError> {
        let folder = self.folder_of(workspace).join(name);
        let path = record_path(&folder);
        if !path.exists() {
            return Ok(());
        }
        let Some(mut locked) = LockedRecord::lock_patiently(&path)? else { return Ok(()) };
        match locked.read()? {
            Some(record) if record.phase == WorktreePhase::Applied => {
                self.discard(&folder, &record, locked)
            }
            _ => Ok(()),
        }
    }

    /// Removes a worktree that was moved away.
    fn remove_hidden(
        &self,
        folder: &Path,
        mut record: WorktreeRecord,
        locked: LockedRecord,
    ) -> Result<(), WorktreeError> {
        record.phase = WorktreePhase::Removing;
        locked.write(&record)?;
        self.discard(folder, &record, locked)
    }

    /// Removes all remains of a worktree, the record last.
    pub(super) fn discard(
        &self,
        folder: &Path,
        record: &WorktreeRecord,
        locked: LockedRecord,
    ) -> Result<(), WorktreeError> {
        self.remove_files(folder, record, &locked)?;
        locked.remove()?;
        // The folder of the project, if this was the last one.
        if let Some(project) = folder.parent() {
            let _ = fs::remove_dir(project);
        }
        Ok(())
    }

    /// Removes all remains of a worktree except the record.
    fn remove_files(
        &self,
        folder: &Path,
        record: &WorktreeRecord,
        locked: &LockedRecord,
    ) -> Result<(), WorktreeError> {
        if let Some(found) = &record.repository
            && let Some(git) = self.git.as_ref().filter(|_| found.common_dir.is_dir())
        {
            let branch = format!("refs/heads/{}", record.branch());
            let common = GitTree::open(git, &found.common_dir, None)?;
            if !matches!(record.phase, WorktreePhase::InUse | WorktreePhase::Kept) {
                // Left by a killed git: no other process creates or removes this branch.
                let _ = fs::remove_file(found.common_dir.join(format!("{branch}.lock")));
            }
            if record.phase == WorktreePhase::Creating {
                remove_unfinished(&found.common_dir, &record.name)?;
            }
            let expected = found.tip.as_ref().unwrap_or(&found.base);
            if common.line(&["symbolic-ref", "--quiet", &branch])?.is_some() {
                // A command has made it an alias of another branch, which has to stay.
                let delete = ["symbolic-ref", "--delete", &branch];
                common.change(&delete, None, locked.file())?;
            } else if common.branch_commit(&found.common_dir, &branch)?.as_ref() == Some(expected) {
                // A branch that someone else has moved since is kept.
                let delete = ["update-ref", "--no-deref", "-d", &branch, expected];
                common.change(&delete, None, locked.file())?;
            }
            if let Some(own) = repository::linked(&found.common_dir, folder)? {
                remove_all(&own)?;
            }
            // The folder was partly removed.
            if let Some(own) = &found.own_dir
                && !["gitdir", "locked"].iter().any(|name| own.join(name).exists())
            {
                remove_all(own)?;
            }
            let _ = fs::remove_dir(found.common_dir.join("worktrees"));
        }
        remove_all(&hidden_path(folder))?;
        if matches!(record.phase, WorktreePhase::Creating) {
            remove_all(folder)?;
        }
        for extension in [MANIFEST_EXTENSION, CARRIED_EXTENSION, MERGE_EXTENSION] {
            remove_all(&folder.with_extension(extension))?;
        }
        Ok(())
    }

    /// Finishes the operations of killed processes: removes worktrees whose creation or removal was not complete, and
    /// unchanged worktrees. Returns a sentence for each worktree. Worktrees that a batch in this folder continues stay.
    pub fn sweep(&self, batches: Option<&Path>) -> Vec<String> {
        let (mut sentences, batches) = (Vec::new(), batches.map(real_path));
        for project in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let records = record_files(&project.path());
            let swept = records.iter().filter_map(|path| {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let swept = self.sweep_one(path, batches.as_deref());
                swept.unwrap_or_else(|error| Some(format!("the worktree {name} stays: {error}")))
            });
            sentences.extend(swept);
            for folder in fs::read_dir(project.path()).into_iter().flatten().flatten() {
                if let Err(error) = sweep_orphan(&folder.path()) {
                    log::debug!("{error}");
                }
            }
            // Succeeds if no worktree is left.
            let _ = fs::remove_dir(project.path());
        }
        sentences
    }

    fn sweep_one(
        &self,
        path: &Path,
        batches: Option<&Path>,
    ) -> Result<Option<String>, WorktreeError> {
        let mut locked = match LockedRecord::lock(path) {
            Ok(Some(locked)) => locked,
            Ok(None) => return Ok(None),
            // Another process was quicker.
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let folder = path.with_extension("");
        let Some(mut record) = locked.read()? else {
            locked.remove()?;
            return Ok(None);
        };
        let name = record.name.clone();
        match record.phase {
            WorktreePhase::Creating | WorktreePhase::Removing => {
                self.discard(&folder, &record, locked)?;
                Ok(Some(format!("the worktree {name} of a killed run was removed")))
            }
            WorktreePhase::Applied => {
                if folder.exists() {
                    let (state, ..) = self.examine(&record, &folder)?;
                    if record.has_work(&state.digest) {
                        // The work was added after the changes were applied.
                        record.phase = WorktreePhase::Kept;
                        locked.write(&record)?;
                        let shown = folder.display();
                        return Ok(Some(format!("the worktree {name} has work: {shown}")));
                    }
                    move_away(&folder)?;
                }
                self.remove_files(&folder, &record, &locked)?;
                Ok(None)
            }
            WorktreePhase::InUse | WorktreePhase::Kept => {
                if hidden_path(&folder).exists() {
                    move_back(&folder)?;
                }
                if !folder.exists() {
                    // The user has removed the files. A branch with commits stays.
                    self.discard(&folder, &record, locked)?;
                    return Ok(None);
                }
                let is_continued =
                    |batch: &PathBuf| batches.is_some_and(|batches| batch.starts_with(batches));
                if record.phase == WorktreePhase::Kept
                    || record.batch.as_ref().is_some_and(is_continued)
                {
                    return Ok(None);
                }
                self.sweep_used(&folder, record, locked).map(Some)
            }
        }
    }

    /// Ends the use of a worktree whose process was killed.
    fn sweep_used(
        &self,
        folder: &Path,
        mut record: WorktreeRecord,
        locked: LockedRecord,
    ) -> Result<String, WorktreeError> {
        let name = record.name.clone();
        let tree = match self.tree(&record, folder) {
            Ok(tree) => tree,
            Err(error) => {
                // Reported once. The worktree stays as it is.
                record.phase = WorktreePhase::Kept;
                locked.write(&record)?;
                return Err(error);
            }
        };
        let (folder, notices) = (folder.to_owned(), Vec::new());
        let worktree = Worktree { folder: folder.clone(), record, locked, tree, notices };
        Ok(match self.finish(worktree)? {
            true => format!("the worktree {name} of a killed run has work: {}", folder.display()),
            false => format!("the unchanged worktree {name} of a killed run was removed"),
        })
    }
}

/// Removes the folder of a removed worktree, if git or the supervisor of a command has written there since: they end a
/// moment after the process that started them.
fn sweep_orphan(folder: &Path) -> Result<(), IoError> {
    let is_name = folder.file_name().and_then(OsStr::to_str).is_some_and(is_name);
    if !is_name || !is_orphan(folder) {
        return Ok(());
    }
    // No other process can create a worktree with this name now.
    let Some(locked) = LockedRecord::claim(&record_path(folder))? else { return Ok(()) };
    if is_orphan(folder) {
        remove_all(folder)?;
    }
    locked.remove()
}

/// Removes the folder of a linked work tree that a killed git had not finished.
fn remove_unfinished(common_dir: &Path, name: &str) -> Result<(), IoError> {
    let own = common_dir.join("worktrees").join(name);
    let is_empty = fs::metadata(own.join("gitdir")).map_or(true, |found| found.len() == 0);
    if own.is_dir() && is_empty { remove_all(&own) } else { Ok(()) }
}

pub(super) fn hidden_path(folder: &Path) -> PathBuf {
    folder.with_extension(REMOVED_EXTENSION)
}

/// Renames a worktree, so that no path leads there any longer. Returns the new path.
fn move_away(folder: &Path) -> Result<PathBuf, IoError> {
    let hidden = hidden_path(folder);
    match fs::rename(folder, &hidden) {
        // The user has removed the worktree.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(hidden),
        renamed => renamed.map(|()| hidden).io_context("rename", folder),
    }
}

fn move_back(folder: &Path) -> Result<(), IoError> {
    let hidden = hidden_path(folder);
    fs::rename(&hidden, folder).io_context("rename", &hidden)
}

impl Worktree {
    /// Records the current commit of the branch, which is removed with the worktree.
    pub(super) fn keep_tip(&mut self) -> Result<(), WorktreeError> {
        if let (Some(repository), Some(tree)) = (&mut self.record.repository, &self.tree) {
            let branch = format!("refs/heads/{}", super::branch_of(&self.record.name));
            repository.tip = tree.branch_commit(&repository.common_dir, &branch)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConfinedGit;
    use super::super::create::{WorktreeContent, WorktreeName, WorktreeRequest};
    use super::*;

    struct NoGit;

    impl ConfinedGit for NoGit {
        fn run(&self, _: &Path, _: &[&str]) -> Result<(), String> {
            Err("there is no git".to_owned())
        }
    }

    /// The user may have saved files in the worktree since its changes were applied.
    #[test]
    fn an_applied_worktree_that_can_not_be_examined_stays() {
        let temp = tempfile::tempdir().unwrap();
        let workspace = temp.path().join("w");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("a"), "a").unwrap();
        let worktrees = Worktrees::new(&temp.path().join("state"), None);
        let request = WorktreeRequest {
            workspace: &workspace,
            name: WorktreeName::Given("one"),
            content: WorktreeContent::Commit(None),
        };
        let mut worktree = worktrees.create(&request, &NoGit).unwrap();
        worktree.record.phase = WorktreePhase::Applied;
        worktree.locked.write(&worktree.record).unwrap();
        let folder = worktree.folder.clone();
        drop(worktree);
        fs::write(folder.join("mine"), "mine").unwrap();
        let manifest = folder.with_extension(MANIFEST_EXTENSION);
        let content = fs::read(&manifest).unwrap();
        fs::write(&manifest, "{").unwrap();
        let sentences = worktrees.sweep(None);
        assert!(sentences[0].contains("the worktree one stays"), "{sentences:?}");
        assert!(folder.join("mine").exists());
        // Later, it can be examined, and has work.
        fs::write(&manifest, content).unwrap();
        let sentences = worktrees.sweep(None);
        assert!(sentences[0].contains("the worktree one has work"), "{sentences:?}");
    }
}
