//! Merging of a worktree into its original tree: as a fast-forward, or as changes of files.
//!
//! Changes are made only to the files: the user's index, branch and stash stay as they are. All changes are determined
//! before the first file is written; with a conflict, no file is. They are also stored before that: a killed merge is
//! completed by the next one (`merge_log`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::mem::take;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;

use super::changes::WorktreeState;
use super::error::WorktreeError;
use super::git::{GitTree, path_of};
use super::merge_log::{MergeLog, PlannedChange, remove_temporary};
use super::record::{WorktreePhase, WorktreeRecord};
use super::repository::Repository;
use super::tree_copy::{EntryContent, TreeManifest, open_tree};
use super::{
    CARRIED_EXTENSION, ConfinedGit, MANIFEST_EXTENSION, Worktree, Worktrees, examine, read_manifest,
};
use crate::types::FileChange;
use crate::workspace::open_folder::{create_below, open_below, open_parent, twice};
use crate::workspace::{IoContext, IoError};

/// The outcome of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// There was nothing to merge.
    Nothing,
    /// The branch of the user was fast-forwarded to this commit.
    FastForward(String),
    /// These changes were made to the files, and are uncommitted.
    Files(Vec<FileChange>),
}

/// A changed file of a worktree, with its content before and after the changes.
struct MergedFile {
    path: PathBuf,
    /// The content to which the changes were made.
    base: BaseContent,
    theirs: EntryContent,
}

/// The content of a file before the changes.
enum BaseContent {
    /// The file did not exist.
    Absent,
    /// A git blob. The index shows whether the user's file is still unchanged.
    Blob { id: String, is_executable: bool, is_unchanged: bool },
    /// A file with this digest.
    Digest(String),
    /// A file that was carried over with the user's changes.
    Carried(EntryContent),
}

/// The maximum number of lines of a conflict that are shown.
const MAX_CONFLICT_LINES: usize = 40;

/// The maximum number of file names in a sentence.
const MAX_NAMES: usize = 5;

impl Worktrees {
    /// Merges a worktree into its original tree.
    ///
    /// # Errors
    ///
    /// Fails with conflicts; nothing is then changed. Fails if git or the system fails.
    pub fn merge(
        &self,
        worktree: &mut Worktree,
        confined: &dyn ConfinedGit,
    ) -> Result<MergeOutcome, WorktreeError> {
        self.merge_with(worktree, Some(confined))
    }

    /// Applies the changes of a worktree to the files of its original tree, once. A repetition returns the changes of
    /// the first time.
    ///
    /// # Errors
    ///
    /// Fails with conflicts; nothing is then changed. Fails if git or the system fails.
    pub fn apply(&self, worktree: &mut Worktree) -> Result<Vec<FileChange>, WorktreeError> {
        match self.merge_with(worktree, None)? {
            MergeOutcome::Files(changes) => Ok(changes),
            MergeOutcome::Nothing | MergeOutcome::FastForward(_) => Ok(Vec::new()),
        }
    }

    /// Merges a worktree. Without `confined`, the branch of the user stays where it is.
    fn merge_with(
        &self,
        worktree: &mut Worktree,
        confined: Option<&dyn ConfinedGit>,
    ) -> Result<MergeOutcome, WorktreeError> {
        worktree.remove_leftovers()?;
        // An interrupted merge is completed first, or decided again.
        let (mut before, mut attempted) = (Vec::new(), Vec::new());
        if let Some(log) = MergeLog::load(&worktree.folder)? {
            (before, attempted) = (log.changes(), log.changed());
            let completed = log.complete(&worktree.folder, &mut worktree.record.leftovers);
            if completed.map_err(|error| error.after_attempt(&attempted))? {
                worktree.note_merge(log.digest, take(&mut before), confined.is_none())?;
                attempted.clear();
            }
        }
        let (state, changes) = examine(
            &worktree.record,
            &worktree.folder,
            worktree.tree.as_ref(),
            Some(worktree.locked.file()),
        )?;
        let is_merged = worktree.record.merged.as_ref() == Some(&state.digest)
            && !worktree.record.changes.is_empty();
        if is_merged && confined.is_none() {
            return Ok(MergeOutcome::Files(worktree.record.changes.clone()));
        }
        if changes.is_empty() {
            return Ok(MergeOutcome::Nothing);
        }
        let MergePlan { top, files, forward } = match &worktree.tree {
            Some(tree) => self.merge_branch(
                &worktree.record,
                &worktree.folder,
                tree,
                &state,
                confined.is_some(),
            ),
            None => merge_copy(&worktree.record, &worktree.folder),
        }
        .map_err(|error| error.after_attempt(&attempted))?;
        // Files that the user has since removed from the tree are merged again.
        if is_merged && files.is_empty() && forward.is_none() {
            return Ok(MergeOutcome::Files(worktree.record.changes.clone()));
        }
        let mut changes = Vec::new();
        if !files.is_empty() {
            let log = MergeLog { digest: state.digest.clone(), top: top.clone(), files };
            log.store(&worktree.folder)?;
            let made = log.make(&worktree.folder, &mut worktree.record.leftovers);
            changes = made.map_err(|error| error.after_attempt(&attempted))?;
        }
        // Changes that are already in the files were made before the interrupt.
        before.retain(|old| changes.iter().all(|new| new.path != old.path));
        changes.append(&mut before);
        let moved = forward.map(|forward| forward.make(&worktree.record, worktree.locked.file()));
        let outcome = match moved {
            Some(Ok(commit)) => {
                changes.clear();
                MergeOutcome::FastForward(commit)
            }
            Some(Err(error)) => {
                // The files are merged, but the user's index or branch has changed meanwhile.
                log::debug!("no fast-forward: {error}");
                MergeOutcome::Files(changes.clone())
            }
            None if changes.is_empty() => MergeOutcome::Nothing,
            None => MergeOutcome::Files(changes.clone()),
        };
        if let (MergeOutcome::FastForward(_), Some(confined)) = (&outcome, confined) {
            // Without this, git would read all new files at its next status check.
            let refreshed = confined.run(&top, &["update-index", "-q", "--refresh"]);
            let _ = refreshed.inspect_err(|message| log::debug!("no refresh: {message}"));
        }
        let name = worktree.record.name.clone();
        let noted = worktree.note_merge(state.digest, changes, confined.is_none());
        noted.map_err(|error| match outcome {
            MergeOutcome::Nothing => error,
            _ => WorktreeError::UnfinishedMerge { name, reason: error.to_string() },
        })?;
        Ok(outcome)
    }

    /// Returns the part of a merged worktree that is no longer in the user's tree, or may not be; `None` if all of it
    /// is there, or on another branch than that of the worktree.
    pub(super) fn loss_since_merge(
        &self,
        record: &WorktreeRecord,
        folder: &Path,
        tree: Option<&GitTree>,
        state: &WorktreeState,
    ) -> Result<Option<String>, WorktreeError> {
        let plan = match tree {
            Some(tree) => {
                let branch = record.branch();
                if has_other_commits(tree, &branch)? {
                    return Ok(Some(format!("commits of {branch} that were not merged")));
                }
                if state.uncommitted.is_empty() && is_on_other_branch(tree, &branch, "HEAD")? {
                    return Ok(None);
                }
                self.merge_branch(record, folder, tree, state, true)
            }
            None => merge_copy(record, folder),
        };
        let origin = record.workspace.display();
        match plan {
            Ok(plan) if plan.files.is_empty() => Ok(None),
            Ok(plan) => {
                let paths = plan.files.iter().map(PlannedChange::path);
                Ok(Some(format!("merged, but no longer in {origin}: {}", join_some(paths))))
            }
            Err(WorktreeError::Conflicts { conflicts, .. }) => {
                let reasons = conflicts.iter().filter_map(|conflict| conflict.lines().next());
                let reasons = join_some(reasons.map(str::to_owned));
                Ok(Some(format!("merged, but perhaps no longer in {origin}: {reasons}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Plans the merge of a branch. With `may_forward`, it is a fast-forward if that is possible.
    fn merge_branch(
        &self,
        record: &WorktreeRecord,
        folder: &Path,
        tree: &GitTree,
        state: &WorktreeState,
        may_forward: bool,
    ) -> Result<MergePlan, WorktreeError> {
        let origin = &record.workspace;
        let refused = |why: String| WorktreeError::conflicts(&record.name, vec![why]);
        let repository = Repository::find(origin)
            .ok_or_else(|| refused(format!("{} is no repository", origin.display())))?;
        let Some(top) = repository.top.clone() else {
            let branch = record.branch();
            return Err(refused(format!(
                "{} has no work tree; the branch is {branch}",
                origin.display()
            )));
        };
        if let Some(operation) = repository.operation() {
            return Err(refused(format!("{operation} is in progress in {}", top.display())));
        }
        let git = self.git.as_ref().ok_or_else(|| WorktreeError::NoGit(origin.clone()))?;
        let main = GitTree::open(git, &repository.git_dir, Some(&top))?;
        let tip = tree.commit("HEAD")?.unwrap_or_default();
        let (_, base) = main.status(&["merge-base", "HEAD", &tip])?;
        let base = String::from_utf8_lossy(&base).trim().to_owned();
        let head = main.commit("HEAD")?.unwrap_or_default();
        let is_forward = may_forward && state.uncommitted.is_empty() && base == head && tip != head;
        let recorded = record.repository.as_ref().map(|found| found.base.clone());
        let base = if base.is_empty() { recorded.unwrap_or_default() } else { base };
        let BranchFiles { mut files, submodules, hidden } =
            branch_files(tree, &main, folder, state, &base, refused)?;
        let is_forward = is_forward
            && files.iter().all(MergedFile::is_free)
            && (hidden.is_empty() || are_hidden(&main, &top, &hidden)?);
        if !is_forward {
            if let Some(path) = submodules.first() {
                return Err(refused(format!("{}: a submodule has changed", path.display())));
            }
            if let Some(path) = hidden.first() {
                let why = format!("{}: a sparse checkout leaves it out", path.display());
                return Err(refused(why));
            }
        }
        use_carried_base(folder, &mut files)?;
        let files = plan(&record.name, &top, files, Some(&main))?;
        let forward = is_forward.then_some(Forward { main, head, tip, submodules, hidden });
        Ok(MergePlan { top, files, forward })
    }
}

/// The plan of a merge.
struct MergePlan {
    /// The top of the user's tree.
    top: PathBuf,
    /// The files to change.
    files: Vec<PlannedChange>,
    /// The fast-forward of the user's branch after that, if there is one.
    forward: Option<Forward>,
}

/// A fast-forward to the commit of a worktree. The commit's files are already in the user's tree. Git would write them
/// in the middle of its work, so that a full disk or a kill would leave some of them.
struct Forward {
    main: GitTree,
    head: String,
    tip: String,
    /// Submodules that are new or at another commit. Their files are in their own repositories.
    submodules: Vec<PathBuf>,
    /// Files that a sparse checkout omits.
    hidden: Vec<PathBuf>,
}

impl Forward {
    /// Moves the index and then the branch. Returns the commit.
    fn make(&self, record: &WorktreeRecord, lock: &File) -> Result<String, WorktreeError> {
        let Self { main, head, tip, submodules, hidden } = self;
        if let (Some(top), false) = (main.work_tree(), submodules.is_empty()) {
            let top = open_tree(top)?;
            for path in submodules {
                create_below(&top, path).io_context("create", path)?;
            }
        }
        // Other changes in the user's index of git stay there.
        let read_tree = |from: &str, to: &str| {
            main.change(&["read-tree", "-i", "-m", from, to], None, lock)?;
            if hidden.is_empty() {
                return Ok(());
            }
            let names =
                hidden.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat());
            let names: Vec<u8> = names.collect();
            main.change(&["update-index", "--skip-worktree", "-z", "--stdin"], Some(&names), lock)
        };
        read_tree(head, tip)?;
        let reason = format!("merge {}: Fast-forward", record.branch());
        let update = format!("update ORIG_HEAD {head}\nupdate HEAD {tip} {head}\n");
        let update_ref = ["update-ref", "-m", &reason, "--stdin"];
        let moved = main.change(&update_ref, Some(update.as_bytes()), lock);
        if moved.is_err()
            && let Err(error) = twice(|| read_tree(tip, head))
        {
            log::warn!("the changes are staged, since the index could not be restored: {error}");
        }
        moved.map(|()| tip.clone())
    }
}

impl Worktree {
    /// Removes the temporary files that earlier merges have left in the user's tree.
    fn remove_leftovers(&mut self) -> Result<(), IoError> {
        let count = self.record.leftovers.len();
        remove_temporary(&mut self.record.leftovers);
        match self.record.leftovers.len() == count {
            true => Ok(()),
            false => self.locked.write(&self.record),
        }
    }

    /// Records a complete merge. A worktree whose changes are applied is no longer needed, even if its process is
    /// killed now.
    fn note_merge(
        &mut self,
        digest: String,
        changes: Vec<FileChange>,
        is_applied: bool,
    ) -> Result<(), WorktreeError> {
        self.record.phase = match is_applied && !changes.is_empty() {
            true => WorktreePhase::Applied,
            false => WorktreePhase::Kept,
        };
        self.record.merged = Some(digest);
        self.record.changes = changes;
        if self.record.phase == WorktreePhase::Applied {
            self.keep_tip()?;
        }
        self.locked.write(&self.record)?;
        Ok(MergeLog::remove(&self.folder)?)
    }
}

/// Returns whether a commit is on a branch, or another reference, that is not the branch of a worktree.
fn is_on_other_branch(tree: &GitTree, branch: &str, commit: &str) -> Result<bool, WorktreeError> {
    let Some(commit) = tree.commit(commit)? else { return Ok(false) };
    let found = tree.query(&["for-each-ref", "--contains", &commit, "--format=%(refname)"])?;
    let own = format!("refs/heads/{branch}");
    Ok(String::from_utf8_lossy(&found).lines().any(|name| name != own))
}

/// Returns whether the branch of a worktree has commits that are nowhere else, if another branch is checked out in the
/// worktree by now.
fn has_other_commits(tree: &GitTree, branch: &str) -> Result<bool, WorktreeError> {
    let own = format!("refs/heads/{branch}");
    let (head, tip) = (tree.commit("HEAD")?, tree.commit(&own)?);
    let (Some(head), Some(tip)) = (head, tip) else { return Ok(false) };
    if head == tip || is_on_other_branch(tree, branch, &own)? {
        return Ok(false);
    }
    let (code, _) = tree.status(&["merge-base", "--is-ancestor", &tip, &head])?;
    Ok(code != Some(0))
}

/// Returns the first names, and the number of the others.
fn join_some(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
    }
}

impl MergedFile {
    /// Returns whether the user has no change of the same file.
    fn is_free(&self) -> bool {
        match &self.base {
            BaseContent::Blob { is_unchanged, .. } => *is_unchanged,
            BaseContent::Absent | BaseContent::Digest(_) | BaseContent::Carried(_) => true,
        }
    }
}

/// Returns whether a sparse checkout of the user omits these files.
fn are_hidden(main: &GitTree, top: &Path, paths: &[PathBuf]) -> Result<bool, WorktreeError> {
    let sparse = main.line(&["config", "--bool", "core.sparseCheckout"])?;
    let top = open_tree(top)?;
    for path in paths {
        if read(&top, path)? != EntryContent::Absent {
            return Ok(false);
        }
    }
    Ok(sparse.as_deref() == Some("true"))
}

/// The differences between a commit and a work tree.
struct BranchFiles {
    files: Vec<MergedFile>,
    /// Submodules that are new or at another commit.
    submodules: Vec<PathBuf>,
    /// Files that a sparse checkout omits.
    hidden: Vec<PathBuf>,
}

/// Returns the differences between a commit and a work tree.
fn branch_files(
    tree: &GitTree,
    main: &GitTree,
    folder: &Path,
    state: &WorktreeState,
    base: &str,
    refused: impl Fn(String) -> WorktreeError,
) -> Result<BranchFiles, WorktreeError> {
    let diff = ["diff-index", "-z", "--no-renames", "--ignore-submodules=dirty"];
    let theirs = raw_changes(&tree.query(&[&diff[..], &[base]].concat())?);
    let ours = raw_changes(&main.query(&[&diff[..], &[base]].concat())?);
    let top = open_tree(folder)?;
    let mut left_out = BTreeSet::new();
    for tree in [tree, main] {
        let listed = tree.query(&["ls-files", "-t", "-z"])?;
        let listed = listed.split(|byte| *byte == 0).filter_map(|line| line.strip_prefix(b"S "));
        left_out.extend(listed.map(path_of));
    }
    let (mut files, mut submodules, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
    for (path, change) in &theirs {
        if change.is_other_commit {
            submodules.push(path.clone());
            continue;
        }
        if left_out.contains(path) {
            hidden.push(path.clone());
            continue;
        }
        if change.is_submodule {
            return Err(refused(format!("{}: a submodule has changed", path.display())));
        }
        let base = match &change.old {
            None => BaseContent::Absent,
            Some(id) => BaseContent::Blob {
                id: id.clone(),
                is_executable: change.was_executable,
                is_unchanged: !ours.contains_key(path),
            },
        };
        files.push(MergedFile { path: path.clone(), base, theirs: read_theirs(&top, path)? });
    }
    for path in state.untracked.iter().filter(|path| !theirs.contains_key(*path)) {
        let entry = read(&top, path)?;
        if entry == EntryContent::Other {
            let why = format!("{}: a repository in the worktree can't be merged", path.display());
            return Err(refused(why));
        }
        files.push(MergedFile { path: path.clone(), base: BaseContent::Absent, theirs: entry });
    }
    Ok(BranchFiles { files, submodules, hidden })
}

/// Sets the base of carried-over files to the content that was carried over.
fn use_carried_base(folder: &Path, files: &mut Vec<MergedFile>) -> Result<(), WorktreeError> {
    let carried = folder.with_extension(CARRIED_EXTENSION);
    if !folder.with_extension(MANIFEST_EXTENSION).exists() {
        return Ok(());
    }
    let manifest = read_manifest(folder)?;
    let top = open_tree(folder)?;
    files.retain(|file| manifest.entry(&file.path).is_none());
    for path in manifest.paths() {
        let theirs = read_theirs(&top, &path)?;
        // A file with the content that was carried over has not changed.
        if manifest.entry(&path) != Some(&*theirs.digest()) {
            // If no files were carried over, the folder does not exist.
            let base = match carried.exists() {
                true => read(&open_tree(&carried)?, &path)?,
                false => EntryContent::Absent,
            };
            let base = BaseContent::Carried(base);
            files.push(MergedFile { path, base, theirs });
        }
    }
    Ok(())
}

/// A line of a raw diff.
struct RawChange {
    /// The previous blob.
    old: Option<String>,
    was_executable: bool,
    is_submodule: bool,
    /// Whether a submodule is new or at another commit.
    is_other_commit: bool,
}

fn raw_changes(diff: &[u8]) -> BTreeMap<PathBuf, RawChange> {
    let mut parts = diff.split(|byte| *byte == 0);
    let mut changes = BTreeMap::new();
    while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
        let head = String::from_utf8_lossy(head);
        let fields: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
        let [old_mode, mode, id, ..] = fields[..] else { continue };
        let is_submodule = [old_mode, mode].contains(&"160000");
        let is_other_commit = mode == "160000" && ["000000", mode].contains(&old_mode);
        let old = (old_mode != "000000").then(|| id.to_owned());
        let was_executable = old_mode == "100755";
        let change = RawChange { old, was_executable, is_submodule, is_other_commit };
        changes.insert(path_of(path), change);
    }
    changes
}

fn read(top: &Dir, path: &Path) -> Result<EntryContent, IoError> {
    EntryContent::read(top, path).io_context("read", path)
}

/// Reads an entry that was a file or a link of a worktree. It counts as absent if a folder is in its place, or a link
/// in the place of its folder.
fn read_theirs(top: &Dir, path: &Path) -> Result<EntryContent, IoError> {
    let is_folder = open_below(top, path).is_ok();
    if is_folder { Ok(EntryContent::Absent) } else { read(top, path) }
}

fn merge_copy(record: &WorktreeRecord, folder: &Path) -> Result<MergePlan, WorktreeError> {
    let before = read_manifest(folder)?;
    let top = open_tree(folder)?;
    let now = TreeManifest::of(&top).io_context("read", folder)?;
    let files = before.changes_to(&now).into_iter().map(|path| {
        let base = match before.entry(&path) {
            None => BaseContent::Absent,
            Some(digest) => BaseContent::Digest(digest.to_owned()),
        };
        Ok(MergedFile { theirs: read_theirs(&top, &path)?, path, base })
    });
    let files = files.collect::<Result<_, WorktreeError>>()?;
    let top = record.workspace.clone();
    Ok(MergePlan { files: plan(&record.name, &top, files, None)?, top, forward: None })
}

/// Returns the changes of the user's tree.
fn plan(
    name: &str,
    top: &Path,
    files: Vec<MergedFile>,
    main: Option<&GitTree>,
) -> Result<Vec<PlannedChange>, WorktreeError> {
    let (mut planned, mut conflicts) = (Vec::new(), Vec::new());
    let tree = open_tree(top)?;
    let is_gone = |file: &&MergedFile| file.theirs == EntryContent::Absent;
    let gone: BTreeSet<PathBuf> = files.iter().filter(is_gone).map(|it| it.path.clone()).collect();
    for file in files {
        // The file is already gone: a folder, or an entry behind a link, is not the file.
        if is_gone(&&file) && read_theirs(&tree, &file.path)? == EntryContent::Absent {
            continue;
        }
        let is_replaced = file.path.ancestors().skip(1).any(|folder| gone.contains(folder));
        let ours = match is_below_link(&tree, &file.path) {
            // The link will be replaced by a folder.
            true if is_replaced => EntryContent::Absent,
            true => EntryContent::Other,
            false => read(&tree, &file.path)?,
        };
        // The folder will be replaced by a link or a file, and nothing stays in it.
        let is_emptied = ours == EntryContent::Other && is_emptied(&tree, &file.path, &gone)?;
        let merged =
            merge_file(&file, if is_emptied { &EntryContent::Absent } else { &ours }, main);
        match merged? {
            Err(conflict) => conflicts.push(format!("{}: {conflict}", file.path.display())),
            Ok(None) => {}
            // The file is already merged.
            Ok(Some(after)) if after == ours => {}
            Ok(Some(after)) => planned.push(PlannedChange::new(file.path, &ours, after)),
        }
    }
    match conflicts.is_empty() {
        true => Ok(planned),
        false => Err(WorktreeError::conflicts(name, conflicts)),
    }
}

/// Returns whether a path is a folder of the user in which everything will be removed.
fn is_emptied(top: &Dir, path: &Path, gone: &BTreeSet<PathBuf>) -> Result<bool, IoError> {
    let Ok(folder) = open_below(top, path) else { return Ok(false) };
    for entry in folder.entries().io_context("read", path)? {
        let below = path.join(entry.io_context("read", path)?.file_name());
        if !gone.contains(&below) && !is_emptied(top, &below, gone)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a folder of a path is a link, so that the user's files are elsewhere.
fn is_below_link(top: &Dir, path: &Path) -> bool {
    let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    let mut found = folders.filter_map(|folder| {
        let (parent, name) = open_parent(top, folder).ok()?;
        parent.symlink_metadata(name).ok()
    });
    found.any(|found| found.is_symlink())
}

/// Returns the change of one file, if there is one, or the conflict.
fn merge_file(
    file: &MergedFile,
    ours: &EntryContent,
    main: Option<&GitTree>,
) -> Result<Result<Option<EntryContent>, String>, WorktreeError> {
    let MergedFile { base, theirs, path } = file;
    if ours == theirs {
        return Ok(Ok(None));
    }
    if *theirs == EntryContent::Other {
        return Ok(Err("it is neither a file nor a link".to_owned()));
    }
    let change = theirs.clone();
    let (id, was_executable, is_unchanged) = match (base, ours) {
        (BaseContent::Absent, EntryContent::Absent) => return Ok(Ok(Some(change))),
        (BaseContent::Absent, _) => return Ok(Err("it is new in both trees".to_owned())),
        (BaseContent::Digest(digest), ours) if ours.digest() == *digest => {
            return Ok(Ok(Some(change)));
        }
        (BaseContent::Carried(base), ours) if base == ours => return Ok(Ok(Some(change))),
        (BaseContent::Carried(base), _) => return merge_carried(main, base, ours, theirs),
        (BaseContent::Digest(_), _) => return Ok(Err("it has changed in both trees".to_owned())),
        (BaseContent::Blob { id, is_executable, is_unchanged }, _) => {
            (id, *is_executable, *is_unchanged)
        }
    };
    if is_unchanged && !matches!(ours, EntryContent::Absent | EntryContent::Other) {
        return Ok(Ok(Some(change)));
    }
    let Some(main) = main else { return Ok(Err("it has changed in both trees".to_owned())) };
    let blob = main.query(&["cat-file", "blob", id])?;
    match (ours, theirs) {
        (EntryContent::File(..), EntryContent::File(..)) => {
            merge_contents(main, &blob, was_executable, ours, theirs)
        }
        // Only the file's times have changed.
        (EntryContent::File(content, _), _) if *content == blob => Ok(Ok(Some(change))),
        (_, EntryContent::File(content, _)) if *content == blob => Ok(Ok(None)),
        (EntryContent::Absent, _) => {
            Ok(Err("it was removed, and has changed in the worktree".to_owned()))
        }
        (_, EntryContent::Absent) => {
            Ok(Err("it has changed, and was removed in the worktree".to_owned()))
        }
        _ => Ok(Err(format!("{} has changed in both trees", path.display()))),
    }
}

/// Merges a carried-over file that the user has changed since.
fn merge_carried(
    main: Option<&GitTree>,
    base: &EntryContent,
    ours: &EntryContent,
    theirs: &EntryContent,
) -> Result<Result<Option<EntryContent>, String>, WorktreeError> {
    match (main, base) {
        (Some(main), EntryContent::File(base, was_executable)) => {
            merge_contents(main, base, *was_executable, ours, theirs)
        }
        _ => Ok(Err("it has changed in both trees".to_owned())),
    }
}

/// Merges a file that has changed in both trees: its text, and whether it is executable.
fn merge_contents(
    main: &GitTree,
    base: &[u8],
    was_executable: bool,
    ours: &EntryContent,
    theirs: &EntryContent,
) -> Result<Result<Option<EntryContent>, String>, WorktreeError> {
    let (EntryContent::File(ours, our_bit), EntryContent::File(theirs, their_bit)) = (ours, theirs)
    else {
        return Ok(Err("it has changed in both trees".to_owned()));
    };
    let is_executable = if *our_bit == was_executable { *their_bit } else { *our_bit };
    let merged = match () {
        // Git merges no binary files, even if only one of them has changed.
        () if ours == base => Ok(theirs.clone()),
        () if theirs == base => Ok(ours.clone()),
        () => merge_text(main, base, ours, theirs)?,
    };
    Ok(merged.map(|text| Some(EntryContent::File(text, is_executable))))
}

/// Merges three versions of a text. Returns the result, or the conflicts with their marks.
fn merge_text(
    main: &GitTree,
    base: &[u8],
    ours: &[u8],
    theirs: &[u8],
) -> Result<Result<Vec<u8>, String>, WorktreeError> {
    let folder = tempfile::tempdir().io_context("create", Path::new("a folder"))?;
    let mut args = vec!["merge-file".to_owned(), "-p".to_owned()];
    args.extend(["-L", "yours", "-L", "before", "-L", "worktree"].map(str::to_owned));
    for (name, content) in [("ours", ours), ("base", base), ("theirs", theirs)] {
        let path = folder.path().join(name);
        fs::write(&path, content).io_context("write", &path)?;
        args.push(path.to_string_lossy().into_owned());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (code, output) = main.status(&args)?;
    match code {
        Some(0) => Ok(Ok(output)),
        // The exit code is the number of conflicts.
        Some(1..=127) => {
            let text = String::from_utf8_lossy(&output).into_owned();
            let lines = conflict_lines(&text);
            Ok(Err(format!("it has changed in both trees\n{lines}")))
        }
        _ => Ok(Err("it has changed in both trees, and is no text".to_owned())),
    }
}

/// Returns the lines of conflicts, with their marks.
fn conflict_lines(text: &str) -> String {
    let mut lines = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        is_inside |= line.starts_with("<<<<<<< ");
        if is_inside {
            lines.push(format!("    {line}"));
        }
        is_inside &= !line.starts_with(">>>>>>> ");
    }
    lines.truncate(MAX_CONFLICT_LINES);
    lines.join("\n")
}
