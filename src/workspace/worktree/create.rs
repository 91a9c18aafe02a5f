//! Creation of worktrees.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use cap_std::fs::{Dir, FileType};

use super::changes::git_state;
use super::error::WorktreeError;
use super::git::{GitTree, path_of};
use super::record::{
    LockedRecord, RepositoryRecord, WorktreePhase, WorktreeRecord, is_name, is_orphan,
};
use super::repository::Repository;
use super::tree_copy::{TreeManifest, copy_folder, open_tree, remove_all, remove_entry};
use super::{
    BRANCH_PREFIX, CARRIED_EXTENSION, ConfinedGit, MANIFEST_EXTENSION, Worktree, Worktrees,
    read_manifest, record_path,
};
use crate::port::unique_id;
use crate::workspace::open_folder::{copy_entry, create_below, open_parent, real_path};
use crate::workspace::{IoContext, IoError, create_private_folder};

/// A worktree to create.
#[derive(Clone, Copy)]
pub struct WorktreeRequest<'a> {
    /// The workspace that it replaces.
    pub workspace: &'a Path,
    /// Its name.
    pub name: WorktreeName<'a>,
    /// The files in it.
    pub content: WorktreeContent<'a>,
}

/// The name of a new worktree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorktreeName<'a> {
    /// This name.
    Given(&'a str),
    /// A free name with this prefix.
    Generated(&'a str),
}

/// The files in a new worktree.
#[derive(Clone, Copy)]
pub enum WorktreeContent<'a> {
    /// The files of this commit, or of the checked-out commit; without git, those of the workspace.
    Commit(Option<&'a str>),
    /// The files of the checked-out commit, with the uncommitted changes: in the index, in the files, and untracked
    /// files that are not ignored.
    Uncommitted,
    /// The files of an earlier state of a workspace.
    Recorded(RecordedFiles<'a>),
}

/// The files of a workspace at an earlier time.
#[derive(Clone, Copy)]
pub struct RecordedFiles<'a> {
    /// The workspace in which they were recorded: the one that the worktree replaces, or another worktree of it.
    pub workspace: &'a Path,
    /// The commit that was checked out, if it is known.
    pub commit: Option<&'a str>,
    /// The writer of the files.
    pub writer: &'a dyn FileWriter,
}

/// A writer of recorded files into a worktree.
pub trait FileWriter {
    /// Changes the files of a folder to the recorded ones. Before, it contains the files of a commit, or none.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the files can't be read or written.
    fn write(&self, folder: &Path) -> Result<(), String>;
}

/// The maximum number of names that are generated.
const NAME_ATTEMPTS: usize = 100;

/// The number of attempts to add a work tree, and the first pause between them.
const ADD_ATTEMPTS: u32 = 20;
const ADD_PAUSE: Duration = Duration::from_millis(20);

/// A worktree that is being created.
struct NewWorktree<'a> {
    worktrees: &'a Worktrees,
    request: WorktreeRequest<'a>,
    folder: PathBuf,
    record: WorktreeRecord,
    locked: LockedRecord,
    notices: Vec<String>,
}

impl Worktrees {
    /// Creates a worktree. Git commands that need the filters of the repository run confined.
    ///
    /// # Errors
    ///
    /// Fails if the workspace can't have such a worktree, and if the system or git fails. Nothing is then left of it.
    pub fn create(
        &self,
        request: &WorktreeRequest<'_>,
        confined: &dyn ConfinedGit,
    ) -> Result<Worktree, WorktreeError> {
        let named = request.workspace;
        let workspace = named.canonicalize().io_context("open", named)?;
        let request = WorktreeRequest { workspace: &workspace, ..*request };
        if let WorktreeName::Given(name) = request.name
            && !is_name(name)
        {
            return Err(WorktreeError::InvalidName(name.to_owned()));
        }
        let repository = Repository::find(&workspace);
        let project = self.folder_of(&workspace);
        let tree = repository.as_ref().and_then(|repository| repository.top.clone());
        let tree = tree.unwrap_or_else(|| workspace.clone());
        if real_path(&project).starts_with(&tree) {
            return Err(WorktreeError::InsideTree { tree, folder: project });
        }
        let main = repository.as_ref().map(|found| self.check(&request, found)).transpose()?;
        let base = match &main {
            None => None,
            Some(main) => Some(request.base(main)?),
        };
        let (folder, locked) = claim(&project, request.name, main.as_ref())?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let subfolder = repository.as_ref().map(|found| found.subfolder.clone());
        let record = WorktreeRecord {
            name,
            phase: WorktreePhase::Creating,
            workspace: workspace.clone(),
            subfolder: subfolder.unwrap_or_default(),
            session: None,
            batch: None,
            repository: repository.zip(base).map(|(found, base)| RepositoryRecord {
                git_dir: found.git_dir,
                common_dir: found.common_dir,
                own_dir: None,
                base,
                tip: None,
            }),
            start: None,
            merged: None,
            changes: Vec::new(),
            leftovers: Vec::new(),
        };
        let mut new =
            NewWorktree { worktrees: self, request, folder, record, locked, notices: Vec::new() };
        match new.make(main.as_ref(), confined) {
            Ok(tree) => {
                let NewWorktree { folder, record, locked, notices, .. } = new;
                Ok(Worktree { folder, record, locked, tree, notices })
            }
            Err(error) => {
                let NewWorktree { folder, mut record, locked, .. } = new;
                // Set back, so that the folder is removed, too.
                record.phase = WorktreePhase::Creating;
                if let Err(left) = self.discard(&folder, &record, locked) {
                    log::warn!("{left}");
                }
                Err(error)
            }
        }
    }

    /// Returns the tree of the user, if a worktree can be created from it.
    fn check(
        &self,
        request: &WorktreeRequest<'_>,
        repository: &Repository,
    ) -> Result<GitTree, WorktreeError> {
        let no_git = || WorktreeError::NoGit(request.workspace.to_owned());
        let git = self.git.as_ref().ok_or_else(no_git)?;
        if matches!(request.content, WorktreeContent::Uncommitted) {
            if repository.top.is_none() {
                return Err(WorktreeError::NoChanges("the repository is a bare one".to_owned()));
            }
            if let Some(operation) = repository.operation() {
                let why = format!("{operation} is in progress; finish or abort it first");
                return Err(WorktreeError::NoChanges(why));
            }
        }
        GitTree::open(git, &repository.git_dir, repository.top.as_deref())
    }
}

impl WorktreeRequest<'_> {
    /// Returns the commit at which the branch begins.
    fn base(&self, main: &GitTree) -> Result<String, WorktreeError> {
        match self.content {
            WorktreeContent::Commit(Some(commit)) => {
                return main.commit(commit)?.ok_or_else(|| WorktreeError::Git {
                    command: "rev-parse".to_owned(),
                    message: format!("unknown commit {commit}"),
                });
            }
            WorktreeContent::Recorded(RecordedFiles { commit: Some(commit), .. }) => {
                if let Some(commit) = main.commit(commit)? {
                    return Ok(commit);
                }
            }
            WorktreeContent::Commit(None)
            | WorktreeContent::Uncommitted
            | WorktreeContent::Recorded(RecordedFiles { commit: None, .. }) => {}
        }
        main.commit("HEAD")?.ok_or(WorktreeError::NoCommit)
    }
}

/// Claims a name in the folder of a project. Returns the folder of the worktree, and the lock.
fn claim(
    project: &Path,
    name: WorktreeName<'_>,
    main: Option<&GitTree>,
) -> Result<(PathBuf, LockedRecord), WorktreeError> {
    let taken = |name: &str, reason: &str| WorktreeError::NameTaken {
        name: name.to_owned(),
        reason: reason.to_owned(),
    };
    let try_name = |name: &str| {
        let folder = project.join(name);
        if let Some(main) = main
            && has_branch(main, name)?
        {
            return Err(taken(name, &format!("a branch {BRANCH_PREFIX}{name}")));
        }
        match claim_record(project, &folder)? {
            Some(locked) if folder.symlink_metadata().is_ok() => {
                if is_orphan(&folder) {
                    remove_all(&folder)?;
                    return Ok((folder, locked));
                }
                locked.remove()?;
                Err(taken(name, &format!("a folder {}", folder.display())))
            }
            Some(locked) => Ok((folder, locked)),
            None => Err(taken(name, &format!("a worktree {}", folder.display()))),
        }
    };
    let prefix = match name {
        WorktreeName::Given(name) => return try_name(name),
        WorktreeName::Generated(prefix) => prefix,
    };
    let mut result = Err(taken("", "no free one"));
    for _ in 0..NAME_ATTEMPTS {
        let id = unique_id().simple().to_string();
        // The end of the id is random.
        result = try_name(&format!("{prefix}-{}", &id[24..]));
        if !matches!(result, Err(WorktreeError::NameTaken { .. })) {
            break;
        }
    }
    result
}

/// Returns whether there is a branch for this name.
fn has_branch(main: &GitTree, name: &str) -> Result<bool, WorktreeError> {
    let branch = format!("refs/heads/{BRANCH_PREFIX}{name}");
    Ok(main.line(&["show-ref", "--verify", &branch])?.is_some())
}

/// Claims the record of a worktree; `None` if it is taken.
fn claim_record(project: &Path, folder: &Path) -> Result<Option<LockedRecord>, IoError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        create_private_folder(project).io_context("create", project)?;
        match LockedRecord::claim(&record_path(folder)) {
            // Another process removes the folder of the project with its last worktree.
            Err(error) if error.is_missing() && attempts < NAME_ATTEMPTS => {}
            claimed => return claimed,
        }
    }
}

impl NewWorktree<'_> {
    /// Creates the claimed worktree. Returns its work tree; `None` for a copy.
    fn make(
        &mut self,
        main: Option<&GitTree>,
        confined: &dyn ConfinedGit,
    ) -> Result<Option<GitTree>, WorktreeError> {
        self.locked.write(&self.record)?;
        let (tree, start) = match main {
            Some(main) => {
                let tree = self.check_out(main, confined)?;
                let start = git_state(&tree, &self.folder, &self.record.branch())?.digest;
                (Some(tree), start)
            }
            None => (None, self.copy()?),
        };
        self.record.start = Some(start);
        self.record.phase = WorktreePhase::InUse;
        self.locked.write(&self.record)?;
        Ok(tree)
    }

    /// Copies a folder, or writes recorded files. Returns the digest of the content.
    fn copy(&mut self) -> Result<String, WorktreeError> {
        create_folder(&self.folder)?;
        let mut base = None;
        match self.request.content {
            WorktreeContent::Commit(_) | WorktreeContent::Uncommitted => {
                let left_out = copy_folder(self.request.workspace, &self.folder)?;
                let names: Vec<_> =
                    left_out.iter().take(5).map(|path| path.display().to_string()).collect();
                if !names.is_empty() {
                    let names = names.join(", ");
                    self.notices
                        .push(format!("pipes, sockets and devices are not copied: {names}"));
                }
            }
            WorktreeContent::Recorded(recorded) => {
                self.write_recorded(recorded)?;
                // Changes in another copy until then have to be merged as well.
                if recorded.workspace != self.request.workspace {
                    base = read_manifest(recorded.workspace).ok();
                }
            }
        }
        let manifest =
            TreeManifest::of(&open_tree(&self.folder)?).io_context("read", &self.folder)?;
        write_manifest(&self.folder, base.as_ref().unwrap_or(&manifest))?;
        Ok(manifest.digest())
    }

    /// Changes the files of the workspace in the worktree to recorded ones.
    fn write_recorded(&self, recorded: RecordedFiles<'_>) -> Result<(), WorktreeError> {
        let workspace = self.folder.join(&self.record.subfolder);
        let made = fs::create_dir_all(&workspace);
        made.io_context("create", &workspace)?;
        recorded.writer.write(&workspace).map_err(WorktreeError::Recorded)
    }

    /// Adds a work tree to the repository, and fills it.
    fn check_out(
        &mut self,
        main: &GitTree,
        confined: &dyn ConfinedGit,
    ) -> Result<GitTree, WorktreeError> {
        let repository = self.record.repository.clone();
        let (Some(git), Some(repository)) = (&self.worktrees.git, repository) else {
            return Err(WorktreeError::NoGit(self.folder.clone()));
        };
        let (branch, folder) = (self.record.branch(), self.folder.to_string_lossy().into_owned());
        let reference = format!("refs/heads/{branch}");
        // Fails if another process has created the branch meanwhile.
        let create = ["update-ref", "--no-deref", &reference, &repository.base, ""];
        if let Err(error) = main.change(&create, None, self.locked.file()) {
            let above = format!("refs/heads/{}", BRANCH_PREFIX.trim_end_matches('/'));
            return Err(match main.line(&["show-ref", "--verify", &above])? {
                Some(_) => WorktreeError::BranchInTheWay(self.record.name.clone()),
                None => error,
            });
        }
        let add = ["worktree", "add", "--no-checkout", &folder, &branch];
        let mut attempts = 1;
        while let Err(error) = main.change(&add, None, self.locked.file()) {
            // Git fails if it finds a work tree that another process has only partly created, or if another process
            // removes the folder of all work trees.
            if attempts == ADD_ATTEMPTS || !is_empty(&self.folder) {
                return Err(error);
            }
            // Longer each time: on a busy computer, the other process may take a while.
            thread::sleep(ADD_PAUSE * attempts);
            attempts += 1;
        }
        let own = super::repository::linked(&repository.common_dir, &self.folder)?;
        let own = own.ok_or_else(|| WorktreeError::Git {
            command: "worktree add".to_owned(),
            message: "the new work tree is not in the repository".to_owned(),
        })?;
        let tree = GitTree::open(git, &own, Some(&self.folder))?;
        if let Some(repository) = &mut self.record.repository {
            repository.own_dir = Some(own);
        }
        let fill = ["reset", "--hard", "--quiet", "--no-recurse-submodules"];
        confined.run(&self.folder, &fill).map_err(|message| WorktreeError::Git {
            command: "reset --hard".to_owned(),
            message,
        })?;
        match self.request.content {
            WorktreeContent::Commit(_) => {}
            WorktreeContent::Uncommitted => self.carry_changes(main, &tree)?,
            WorktreeContent::Recorded(recorded) => {
                self.write_recorded(recorded)?;
                // Changes in another worktree until then have to be merged as well.
                if recorded.workspace == self.request.workspace {
                    self.carry(&changed_paths(&tree)?.paths)?;
                }
            }
        }
        if !self.folder.join(&self.record.subfolder).is_dir() {
            return Err(WorktreeError::NoSubfolder {
                folder: self.record.subfolder.clone(),
                commit: repository.base.chars().take(12).collect(),
            });
        }
        if self.folder.join(".gitmodules").exists() {
            let note =
                "submodules are empty in the worktree; `git submodule update --init` fills them";
            self.notices.push(note.to_owned());
        }
        Ok(tree)
    }

    /// Carries the uncommitted changes over. The index of the user is only read.
    fn carry_changes(&mut self, main: &GitTree, tree: &GitTree) -> Result<(), WorktreeError> {
        let diff = ["diff-index", "-z", "--no-renames"];
        let staged =
            main.query(&[&diff[..], &["--cached", "--ignore-submodules=none", "HEAD"]].concat())?;
        let staged = index_lines(&staged)?;
        let ChangedPaths { paths, repositories, unread } = changed_paths(main)?;
        if let Some(warning) = unread {
            self.notices.push(format!("not all changes are carried over: {warning}"));
        }
        if !repositories.is_empty() {
            let names = repositories.join(", ");
            self.notices
                .push(format!("repositories in the work tree are not carried over: {names}"));
        }
        if !staged.is_empty() {
            let update = ["update-index", "-z", "--index-info"];
            tree.change(&update, Some(&staged), self.locked.file())?;
        }
        let top = open_tree(main.work_tree().unwrap_or(self.request.workspace))?;
        let folder = open_tree(&self.folder)?;
        // Removed entries make room for new ones.
        for path in &paths {
            if kind_at(&top, path).is_none_or(|kind| kind.is_dir())
                && let Ok((folder, name)) = open_parent(&folder, path)
            {
                remove_entry(&folder, name).io_context("remove", path)?;
            }
        }
        copy_entries(&top, &folder, &paths)?;
        self.carry(&paths)
    }

    /// Keeps the current content of these files, as the base of a merge.
    fn carry(&self, paths: &BTreeSet<PathBuf>) -> Result<(), WorktreeError> {
        let carried = self.folder.with_extension(CARRIED_EXTENSION);
        let folder = open_tree(&self.folder)?;
        if paths.iter().any(|path| kind_at(&folder, path).is_some_and(|kind| !kind.is_dir())) {
            if carried.symlink_metadata().is_err() {
                create_folder(&carried)?;
            }
            copy_entries(&folder, &open_tree(&carried)?, paths)?;
        }
        let manifest = TreeManifest::of_paths(&folder, paths.iter().cloned())
            .io_context("read", &self.folder)?;
        Ok(write_manifest(&self.folder, &manifest)?)
    }
}

/// The paths that differ from the checked-out commit, and untracked paths that are not ignored.
struct ChangedPaths {
    /// Files and links.
    paths: BTreeSet<PathBuf>,
    /// Folders with their own repository.
    repositories: Vec<String>,
    /// The warning of git about a folder that it could not read.
    unread: Option<String>,
}

fn changed_paths(tree: &GitTree) -> Result<ChangedPaths, WorktreeError> {
    let differs =
        ["diff-index", "-z", "--no-renames", "--name-only", "--ignore-submodules=all", "HEAD"];
    let changed = tree.query(&differs)?;
    let (others, unread) = tree.list(&["ls-files", "--others", "--exclude-standard", "-z"])?;
    let (mut paths, mut repositories) = (BTreeSet::new(), Vec::new());
    for name in changed.split(|byte| *byte == 0).chain(others.split(|byte| *byte == 0)) {
        match name.last() {
            None => {}
            // Git lists the repositories in a work tree as folders.
            Some(b'/') => repositories.push(path_of(name).display().to_string()),
            Some(_) => drop(paths.insert(path_of(name))),
        }
    }
    Ok(ChangedPaths { paths, repositories, unread })
}

/// Returns lines for `git update-index --index-info` that apply the changes of a raw diff.
fn index_lines(diff: &[u8]) -> Result<Vec<u8>, WorktreeError> {
    let mut lines = Vec::new();
    let mut parts = diff.split(|byte| *byte == 0);
    while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
        let fields: Vec<&[u8]> = head.split(|byte| *byte == b' ').collect();
        let [_, mode, _, id, status] = fields[..] else { continue };
        if status.first() == Some(&b'U') {
            return Err(WorktreeError::NoChanges("files in the index are not merged".to_owned()));
        }
        lines.extend(mode);
        lines.push(b' ');
        lines.extend(id);
        lines.push(b'\t');
        lines.extend(path);
        lines.push(0);
    }
    Ok(lines)
}

/// Returns the kind of the entry at a path below a folder, if no link leads to it.
fn kind_at(top: &Dir, path: &Path) -> Option<FileType> {
    let (folder, name) = open_parent(top, path).ok()?;
    Some(folder.symlink_metadata(name).ok()?.file_type())
}

/// Copies the files and links among these paths to another folder. Entries in their places, or in the places of their
/// folders, are removed.
fn copy_entries(from: &Dir, to: &Dir, paths: &BTreeSet<PathBuf>) -> Result<(), IoError> {
    for path in paths {
        if kind_at(from, path).is_none_or(|kind| kind.is_dir()) {
            continue;
        }
        let copied = open_parent(from, path).and_then(|(source, name)| {
            let target = make_parent(to, path)?;
            remove_entry(&target, name)?;
            copy_entry(&source, name, &target, name)
        });
        copied.io_context("copy", path)?;
    }
    Ok(())
}

/// Creates the parent folder of a path below another folder. Other entries in the place of a folder are removed.
fn make_parent(top: &Dir, path: &Path) -> io::Result<Dir> {
    let mut folder = top.try_clone()?;
    for name in path.parent().into_iter().flat_map(Path::iter) {
        folder = create_below(&folder, Path::new(name)).or_else(|error| {
            if error.kind() != io::ErrorKind::NotADirectory {
                return Err(error);
            }
            folder.remove_file(name)?;
            create_below(&folder, Path::new(name))
        })?;
    }
    Ok(folder)
}

fn write_manifest(folder: &Path, manifest: &TreeManifest) -> Result<(), IoError> {
    let path = folder.with_extension(MANIFEST_EXTENSION);
    let text = serde_json::to_vec(manifest).map_err(io::Error::from);
    text.and_then(|text| fs::write(&path, text)).io_context("write", &path)
}

/// Returns whether a folder does not exist or is empty.
fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

fn create_folder(folder: &Path) -> Result<(), IoError> {
    let made = DirBuilder::new().mode(0o700).create(folder);
    made.io_context("create", folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_diff_becomes_lines_for_the_index() {
        let diff = b":100644 100755 aa bb M\0x y\0:100644 000000 aa 00 D\0z\0";
        let lines = [&b"100755 bb\tx y\0"[..], b"000000 00\tz\0"].concat();
        assert_eq!(index_lines(diff).unwrap(), lines);
        assert!(index_lines(b":100644 000000 aa 00 U\0z\0").is_err());
    }
}
