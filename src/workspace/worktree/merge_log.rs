//! Decided merges. The changes are stored beside the worktree before the first file changes, so that a merge is
//! completed after a kill, and never made twice.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::{Dir, MetadataExt, OpenOptions, OpenOptionsExt};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::MERGE_EXTENSION;
use super::error::WorktreeError;
use super::git::path_of;
use super::tree_copy::{EntryContent, remove_all, remove_entry};
use crate::types::{Durability, FileAction, FileChange, FilePath};
use crate::workspace::edit_batch::{
    BatchedChange, apply_changes, is_leftover_name, leftover_path, rename_to_new, sha256,
    temp_file_name,
};
use crate::workspace::error::FileError;
use crate::workspace::open_folder::{
    create_below, open_below, open_canonical_parent, open_parent, remove_unneeded, twice,
};
use crate::workspace::path::RelPath;
use crate::workspace::root::WorkspaceRoot;
use crate::workspace::{IoContext, IoError, TemporaryFile};

/// A decided merge.
pub(super) struct MergeLog {
    /// The digest of the worktree.
    pub(super) digest: String,
    /// The top folder of the tree to change.
    pub(super) top: PathBuf,
    /// The changes.
    pub(super) files: Vec<PlannedChange>,
}

/// The decided change of a file.
pub(super) struct PlannedChange {
    path: PathBuf,
    /// The digest of the entry before the change.
    before: String,
    /// The digest of a file's content before the change, from which the name of its backup is derived.
    replaced: Option<String>,
    after: EntryContent,
    change: FileChange,
}

/// The stored form of a merge. Contents are in separate files, by number.
#[derive(Serialize, Deserialize)]
struct StoredMerge {
    digest: String,
    top: Vec<u8>,
    files: Vec<StoredChange>,
}

#[derive(Serialize, Deserialize)]
struct StoredChange {
    path: Vec<u8>,
    before: String,
    #[serde(default)]
    replaced: Option<String>,
    after: StoredEntry,
    change: FileChange,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredEntry {
    Absent,
    Link(Vec<u8>),
    File { executable: bool },
}

/// The name of the file with the changes. It exists once all contents are stored.
const LOG: &str = "log.json";

impl PlannedChange {
    /// Returns the change of a file.
    pub(super) fn new(path: PathBuf, before: &EntryContent, after: EntryContent) -> Self {
        let action = match (before, &after) {
            (EntryContent::Absent, _) => FileAction::Created,
            (_, EntryContent::Absent) => FileAction::Deleted,
            _ => FileAction::Modified,
        };
        let (added, removed) = (after.lines_not_in(before), before.lines_not_in(&after));
        let change = FileChange { path: FilePath::new(&path), action, added, removed };
        let replaced = file_digest(before);
        Self { before: before.digest(), replaced, path, after, change }
    }

    /// Returns the path of the file in the tree to change.
    pub(super) fn path(&self) -> String {
        self.change.path.to_string()
    }

    /// Returns the temporary name, in the top folder, of a new link or of a file that replaces another kind of entry.
    /// It is used until all files are changed.
    fn staged_name(&self) -> String {
        temp_file_name(self.path.as_os_str(), &self.after.digest())
    }

    /// Returns the paths of temporary files that a killed process may have left.
    fn leftovers(&self, ours: &EntryContent) -> impl Iterator<Item = PathBuf> {
        let staged = PathBuf::from(self.staged_name());
        let digests = [self.replaced.clone(), file_digest(ours), file_digest(&self.after)];
        let digests = digests.into_iter().flatten();
        let beside = digests.map(|digest| leftover_path(&self.path, &digest));
        beside.chain([staged])
    }

    /// Returns whether the result is a link or a file.
    fn is_new_entry(&self) -> bool {
        matches!(self.after, EntryContent::Link(_) | EntryContent::File(..))
    }

    /// Writes a new link, or a file that replaces another kind of entry, under its temporary name.
    fn prepare(&self, top: &Dir) -> io::Result<()> {
        if !self.is_new_entry() {
            return Ok(());
        }
        let name = self.staged_name();
        remove_entry(top, name.as_ref())?;
        create(top, &name, &self.after)
    }

    /// Applies a change in which a link or a folder is created, replaced or removed.
    fn apply_staged(&self, top: &Dir) -> io::Result<()> {
        let is_new = self.is_new_entry();
        let folder = match open_parent(top, &self.path) {
            _ if is_new => create_below(top, self.path.parent().unwrap_or(Path::new("")))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?.0,
        };
        let name = self.path.file_name().unwrap_or_default();
        match folder.symlink_metadata(name) {
            Ok(found) if found.is_dir() => remove_empty_folders(&folder, name)?,
            Ok(_) => folder.remove_file(name)?,
            Err(_) => {}
        }
        let staged = self.staged_name();
        match is_new.then(|| rename_to_new(top, &staged, &folder, name)) {
            // A folder may be the mount point of another file system.
            Some(Err(Errno::XDEV)) => {
                create(&folder, name, &self.after)?;
                top.remove_file(staged)
            }
            Some(renamed) => Ok(renamed?),
            None => Ok(()),
        }
    }
}

/// Creates a link or a file.
fn create(folder: &Dir, name: impl AsRef<Path>, content: &EntryContent) -> io::Result<()> {
    match content {
        EntryContent::Absent | EntryContent::Other => Ok(()),
        EntryContent::Link(target) => folder.symlink_contents(target, name),
        EntryContent::File(content, is_executable) => {
            let mut options = OpenOptions::new();
            let mode = if *is_executable { 0o755 } else { 0o644 };
            options.write(true).create_new(true).mode(mode);
            folder.open_with(name, &options)?.write_all(content)
        }
    }
}

/// Returns the digest of a file's content, from which the name of a temporary file is derived.
fn file_digest(entry: &EntryContent) -> Option<String> {
    match entry {
        EntryContent::File(content, _) => Some(sha256(content).to_string()),
        _ => None,
    }
}

/// Removes temporary files of a merge. Files that can't be removed stay in the list.
pub(super) fn remove_temporary(paths: &mut Vec<PathBuf>) {
    paths.retain(|path| {
        let remove = || {
            let (folder, name) = open_canonical_parent(path)?;
            match name.to_str().is_some_and(is_leftover_name) {
                true => folder.remove_file(name),
                false => Ok(()),
            }
        };
        !remove_unneeded(format_args!("the temporary file {}", path.display()), remove)
    });
}

impl MergeLog {
    /// Returns the decided merge of a worktree that was not completed.
    pub(super) fn load(worktree: &Path) -> Result<Option<Self>, IoError> {
        let folder = worktree.with_extension(MERGE_EXTENSION);
        let path = folder.join(LOG);
        if !path.exists() {
            return Ok(None);
        }
        let read = || {
            let stored: StoredMerge = serde_json::from_slice(&fs::read(&path)?)?;
            let files = stored.files.into_iter().enumerate().map(|(index, stored)| {
                let after = match stored.after {
                    StoredEntry::Absent => EntryContent::Absent,
                    StoredEntry::Link(target) => EntryContent::Link(path_of(&target)),
                    StoredEntry::File { executable } => {
                        let content = fs::read(folder.join(index.to_string()))?;
                        EntryContent::File(content, executable)
                    }
                };
                let StoredChange { path, before, replaced, change, .. } = stored;
                Ok(PlannedChange { path: path_of(&path), before, replaced, after, change })
            });
            let files = files.collect::<io::Result<_>>()?;
            io::Result::Ok(Self { digest: stored.digest, top: path_of(&stored.top), files })
        };
        read().map(Some).io_context("read", &path)
    }

    /// Stores the merge, which is decided when this returns.
    pub(super) fn store(&self, worktree: &Path) -> Result<(), IoError> {
        let folder = worktree.with_extension(MERGE_EXTENSION);
        remove_all(&folder)?;
        let write = || {
            DirBuilder::new().mode(0o700).create(&folder)?;
            for (index, file) in self.files.iter().enumerate() {
                if let EntryContent::File(content, _) = &file.after {
                    write_synced(&folder.join(index.to_string()), content)?;
                }
            }
            let files = self.files.iter().map(|file| StoredChange {
                path: file.path.as_os_str().as_bytes().to_vec(),
                before: file.before.clone(),
                replaced: file.replaced.clone(),
                after: match &file.after {
                    EntryContent::File(_, executable) => {
                        StoredEntry::File { executable: *executable }
                    }
                    EntryContent::Link(target) => {
                        StoredEntry::Link(target.as_os_str().as_bytes().to_vec())
                    }
                    EntryContent::Absent | EntryContent::Other => StoredEntry::Absent,
                },
                change: file.change.clone(),
            });
            let stored = StoredMerge {
                digest: self.digest.clone(),
                top: self.top.as_os_str().as_bytes().to_vec(),
                files: files.collect(),
            };
            // The file has the default permissions of new files.
            let log = TemporaryFile::create(folder.join("new"), 0o666)?;
            log.file().write_all(&serde_json::to_vec(&stored)?)?;
            log.publish(&folder.join(LOG), Durability::Full)
        };
        write().io_context("write", &folder)
    }

    /// Removes the stored merge.
    pub(super) fn remove(worktree: &Path) -> Result<(), IoError> {
        let folder = worktree.with_extension(MERGE_EXTENSION);
        // The rest without this file doesn't count as a merge.
        let _ = fs::remove_file(folder.join(LOG));
        remove_all(&folder)
    }

    /// Applies the changes: first all of those to files, or none, then those to links and to folders in the place of
    /// files. If the first part fails, the merge is no longer decided. Adds the temporary files that could not be
    /// removed to `leftovers`.
    pub(super) fn make(
        &self,
        worktree: &Path,
        leftovers: &mut Vec<PathBuf>,
    ) -> Result<Vec<FileChange>, WorktreeError> {
        let root = self.open_top().inspect_err(|_| drop(Self::remove(worktree)))?;
        let files = self.files.iter().map(|file| {
            let ours = EntryContent::read(root.dir(), &file.path);
            let ours = ours.map_err(|error| format!("{}: {error}", file.path.display()))?;
            match ours.digest() == file.before {
                true => Ok((file, ours)),
                false => Err(format!("{}: it has changed meanwhile", file.path.display())),
            }
        });
        let files = files.collect::<Result<Vec<_>, _>>();
        let files = files.map_err(|why| Self::refuse(worktree, why))?;
        self.write(worktree, &root, &files, leftovers)?;
        Ok(self.changes())
    }

    /// Completes changes that were interrupted at any point. Returns `false` if others have changed one of the files
    /// meanwhile: then nothing is written, and the merge is no longer decided. It is unknown whether such a file had
    /// its change before; a merge of the current content finds out. Adds the temporary files that could not be removed
    /// to `leftovers`.
    pub(super) fn complete(
        &self,
        worktree: &Path,
        leftovers: &mut Vec<PathBuf>,
    ) -> Result<bool, WorktreeError> {
        let root = self.open_top()?;
        let (mut open, mut left, mut is_outdated) = (Vec::new(), Vec::new(), false);
        for file in &self.files {
            let path = self.top.join(&file.path);
            let ours = EntryContent::read(root.dir(), &file.path);
            let ours = ours.io_context("read", &path)?;
            left.extend(file.leftovers(&ours).map(|left| self.top.join(left)));
            let digest = ours.digest();
            // A link is removed before it is replaced.
            let is_between = ours == EntryContent::Absent && self.is_other_kind(file, &ours);
            if digest == file.before || is_between && digest != file.after.digest() {
                open.push((file, ours));
            } else if digest != file.after.digest() {
                log::debug!("{} was changed meanwhile", path.display());
                is_outdated = true;
            }
        }
        remove_temporary(&mut left);
        leftovers.append(&mut left);
        if is_outdated {
            Self::remove(worktree)?;
            return Ok(false);
        }
        self.write(worktree, &root, &open, leftovers)?;
        Ok(true)
    }

    /// Returns the files that an interrupted attempt or others have changed.
    pub(super) fn changed(&self) -> Vec<String> {
        let Ok(root) = self.open_top() else { return Vec::new() };
        let is_changed = |file: &&PlannedChange| {
            EntryContent::read(root.dir(), &file.path)
                .map_or(true, |ours| ours.digest() != file.before)
        };
        self.files.iter().filter(is_changed).map(PlannedChange::path).collect()
    }

    /// Ends a merge without any changes.
    fn refuse(worktree: &Path, why: String) -> WorktreeError {
        drop(Self::remove(worktree));
        WorktreeError::conflicts(&name_of(worktree), vec![why])
    }

    /// Opens the tree to change. It stays the same tree, even if commands replace its path meanwhile.
    fn open_top(&self) -> Result<WorkspaceRoot, IoError> {
        WorkspaceRoot::open_without_links(&self.top).io_context("open", &self.top)
    }

    /// Returns whether a change affects more than a file: a link, or a folder in the place of a file.
    fn is_other_kind(&self, file: &PlannedChange, ours: &EntryContent) -> bool {
        let is_file =
            |it: &EntryContent| matches!(it, EntryContent::Absent | EntryContent::File(..));
        let is_nested = |other: &PlannedChange| {
            let (one, other) = (&file.path, &other.path);
            one != other && (one.starts_with(other) || other.starts_with(one))
        };
        !is_file(ours)
            || !is_file(&file.after)
            || file.before == EntryContent::Other.digest()
            || self.files.iter().any(is_nested)
    }

    /// Returns the changes for a report.
    pub(super) fn changes(&self) -> Vec<FileChange> {
        self.files.iter().map(|file| file.change.clone()).collect()
    }

    fn write(
        &self,
        worktree: &Path,
        root: &WorkspaceRoot,
        files: &[(&PlannedChange, EntryContent)],
        leftovers: &mut Vec<PathBuf>,
    ) -> Result<(), WorktreeError> {
        let (mut batch, mut links) = (Vec::new(), Vec::new());
        let log = worktree.with_extension(MERGE_EXTENSION).join(LOG);
        let default =
            fs::metadata(log).map_or(0o644, |found| std::os::unix::fs::MetadataExt::mode(&found));
        for (file, ours) in files {
            if self.is_other_kind(file, ours) {
                links.push(*file);
                continue;
            }
            let before = match ours {
                EntryContent::File(content, _) => Some(sha256(content)),
                _ => None,
            };
            let (after, mode) = match &file.after {
                EntryContent::File(content, is_executable) => {
                    let was = matches!(ours, EntryContent::File(_, true));
                    // The read permissions of a file stay; a new file has the default ones.
                    let is_read = mode_of(root.dir(), &file.path).unwrap_or(default) & 0o666;
                    let mode =
                        if *is_executable { is_read | is_read >> 2 & 0o111 } else { is_read };
                    (Some(Arc::from(&**content)), (*is_executable != was).then_some(mode))
                }
                _ => (None, None),
            };
            let path = RelPath::new(&file.path);
            let path = path.map_err(|error| Self::refuse(worktree, error.to_string()))?;
            batch.push(BatchedChange { path, before, after, mode });
        }
        // Removals come first, because they make room for the others.
        links.sort_by_key(|file| file.after != EntryContent::Absent);
        let mut staged: Vec<PathBuf> =
            links.iter().map(|file| self.top.join(file.staged_name())).collect();
        let written = self.write_staged(worktree, root, &batch, &links, leftovers);
        if written.is_err() {
            remove_temporary(&mut staged);
        }
        written
    }

    /// Applies the changes to files and then those to links, which then need no space on the disk.
    fn write_staged(
        &self,
        worktree: &Path,
        root: &WorkspaceRoot,
        batch: &[BatchedChange],
        links: &[&PlannedChange],
        leftovers: &mut Vec<PathBuf>,
    ) -> Result<(), WorktreeError> {
        for file in links {
            let staged = file.prepare(root.dir());
            staged.map_err(|error| {
                Self::refuse(worktree, format!("{}: {error}", file.path.display()))
            })?;
        }
        // The rest is completed by the next merge.
        let unfinished =
            |reason| WorktreeError::UnfinishedMerge { name: name_of(worktree), reason };
        let left = apply_changes(root, batch).map_err(|error| match error {
            FileError::PartlyApplied { .. } | FileError::Leftovers { .. } => {
                unfinished(error.to_string())
            }
            error => Self::refuse(worktree, error.to_string()),
        })?;
        leftovers.extend(left.into_iter().map(|path| self.top.join(path)));
        for file in links {
            // Files have already changed, so an error of a disk gets a second chance.
            let applied = twice(|| file.apply_staged(root.dir()));
            applied.map_err(|error| unfinished(format!("{}: {error}", file.path.display())))?;
        }
        Ok(())
    }
}

/// Returns the permissions of a file; `None` if there is none.
fn mode_of(top: &Dir, path: &Path) -> Option<u32> {
    let (folder, name) = open_parent(top, path).ok()?;
    Some(folder.symlink_metadata(name).ok()?.mode())
}

/// Returns the name of a worktree.
fn name_of(worktree: &Path) -> String {
    worktree.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Removes a folder with no files in it.
fn remove_empty_folders(parent: &Dir, name: &OsStr) -> io::Result<()> {
    let folder = open_below(parent, Path::new(name))?;
    for entry in folder.entries()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty_folders(&folder, &entry.file_name())?;
        }
    }
    parent.remove_dir(name)
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// A command of another session replaces a folder of the tree by a link during the merge.
    #[test]
    fn no_swapped_folder_leads_a_merge_outside() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().canonicalize().unwrap().join(name);
        for folder in ["top", "plain", "outside/sub"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        let fill = |folder: &str| {
            let _ = fs::remove_file(path(folder).join("link"));
            let _ = fs::remove_dir_all(path(folder).join("sub"));
            fs::write(path(folder).join("gone"), "gone").unwrap();
            fs::write(path(folder).join("changed"), "old").unwrap();
        };
        fill("outside");
        let file = |text: &str| EntryContent::File(text.into(), false);
        let files = vec![
            PlannedChange::new("top/d/gone".into(), &file("gone"), EntryContent::Absent),
            PlannedChange::new("top/d/changed".into(), &file("old"), file("new")),
            PlannedChange::new(
                "top/d/link".into(),
                &EntryContent::Absent,
                EntryContent::Link("x".into()),
            ),
            PlannedChange::new("top/d/sub/new".into(), &EntryContent::Absent, file("new")),
        ];
        let log = MergeLog { digest: String::new(), top: path(""), files };
        let (end, begun, mut made) = (AtomicBool::new(false), Instant::now(), 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    // The merge makes folders, too.
                    let _ = fs::remove_dir_all(path("top/d"));
                    fs::create_dir_all(path("plain")).unwrap();
                    fill("plain");
                    let _ = fs::rename(path("plain"), path("top/d"));
                    thread::sleep(Duration::from_micros(200));
                    let _ = fs::rename(path("top/d"), path("plain"));
                    let _ = symlink("../outside", path("top/d"));
                    thread::sleep(Duration::from_micros(50));
                }
            });
            // On a busy computer, it may take long until the first merge meets the plain folder.
            let is_over =
                |time: Duration, made| made > 0 && time.as_millis() > 1500 || time.as_secs() > 30;
            while !is_over(begun.elapsed(), made) {
                made += u32::from(log.make(&path("worktree"), &mut Vec::new()).is_ok());
            }
            end.store(true, Ordering::Relaxed);
        });
        assert!(made > 0);
        let mut left: Vec<_> = fs::read_dir(path("outside")).unwrap().flatten().collect();
        left.sort_by_key(fs::DirEntry::file_name);
        let left: Vec<_> = left.iter().map(|it| fs::read(it.path()).unwrap_or_default()).collect();
        assert_eq!(left, [&b"old"[..], b"gone"], "changed, gone");
    }
}
