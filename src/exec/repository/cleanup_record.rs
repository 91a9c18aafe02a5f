//! The record of a run, for cleaning up after the program was killed.

use std::cell::LazyCell;
use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ScanRoot;
use super::cleanup::{self, LinkTargets};
use super::followed::UserGitConfig;
use super::scan::{FolderRole, GitItems, ScanDepth, Scanner};
use super::watched_root::WatchedRoot;
#[cfg(target_os = "linux")]
use crate::exec::confine::policy::SandboxPolicy;
use crate::exec::protected::absent_paths::AbsentPaths;
use crate::exec::stored_path;
use crate::workspace::{
    TemporaryFile, create_private_folder, lock_within, open_canonical, replace_entry,
};

/// The folder for records, in the state folder, with a file for each run.
const RECORD_FOLDER: &str = "repositories";

/// The record of a run, used if the run is killed.
#[derive(Serialize, Deserialize)]
pub(super) struct CleanupRecord {
    pub(super) roots: Vec<RecordedRoot>,
    /// Paths that commands cannot change.
    #[serde(with = "stored_path")]
    pub(super) mounted: Vec<PathBuf>,
    /// The folders that the original items refer to, in the order of the roots.
    #[serde(default)]
    #[serde(rename = "led", with = "stored_path")]
    pub(super) targets: Vec<LinkTargets>,
    /// Protected paths that did not exist.
    #[serde(default)]
    pub(super) absent: AbsentPaths,
    /// Paths below protected ones that this program writes.
    #[serde(default, with = "stored_path")]
    pub(super) own: Vec<PathBuf>,
    /// Folders that commands may write, but that are not scanned.
    #[serde(default, with = "stored_path")]
    pub(super) private: Vec<PathBuf>,
    /// The scan depths of the roots, in their order.
    #[serde(default)]
    pub(super) depths: Vec<ScanDepth>,
}

/// A folder that commands can write: its path, its role, the paths that are compared exactly, and the original items.
#[derive(Serialize, Deserialize)]
pub(super) struct RecordedRoot(
    #[serde(with = "stored_path")] pub(super) PathBuf,
    pub(super) FolderRole,
    #[serde(with = "stored_path")] pub(super) Vec<PathBuf>,
    #[serde(with = "stored_path")] pub(super) GitItems,
);

/// The time for which a record is kept if its folders are missing: their disk may be mounted again.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The prefix of the name of an incomplete record.
const UNFINISHED: &str = ".";

fn is_unfinished(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

impl CleanupRecord {
    /// Writes the record, and returns its file, which is locked while open.
    pub(super) fn write(&self, path: &Path) -> io::Result<File> {
        if let Some(folder) = path.parent() {
            create_private_folder(folder)?;
        }
        // Other processes can find the record only once it is locked and complete.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!("{UNFINISHED}{name}"));
        let new = TemporaryFile::create(new, 0o600)?;
        new.file().try_lock()?;
        new.file().write_all(&serde_json::to_vec(self)?)?;
        // An earlier record of the run is not replaced.
        fs::hard_link(new.path(), path)?;
        new.file().try_clone()
    }

    /// Cleans up after an interrupted run. Returns a sentence for each change, and a record of the remaining work in
    /// folders that can't be opened now.
    fn clean_up(
        self,
        user: &UserGitConfig,
        open: impl Fn(&Path) -> io::Result<Dir>,
    ) -> (Vec<String>, Option<Self>) {
        let Self { roots, mounted, targets, absent, own, private, depths } = self;
        let (mut targets, mut depths) = (targets.into_iter(), depths.into_iter());
        let mut left = Self {
            roots: Vec::new(),
            mounted,
            targets: Vec::new(),
            absent: AbsentPaths::default(),
            own,
            private,
            depths: Vec::new(),
        };
        let mut notices = Vec::new();
        for RecordedRoot(path, place, exact, before) in roots {
            let (targets, depth) = (targets.next(), depths.next());
            let dir = match open(&path) {
                Ok(dir) => dir,
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        notices.push(format!(
                            "{} can't be opened: {error}; what a command of a killed run made for git there stays until \
                             it can",
                            path.display()
                        ));
                    }
                    left.roots.push(RecordedRoot(path, place, exact, before));
                    left.targets.extend(targets);
                    left.depths.extend(depth);
                    continue;
                }
            };
            let root = ScanRoot { dir, path };
            let targets = targets.unwrap_or_else(|| cleanup::find_targets(&root, &before));
            let own = left.own.iter().filter_map(|path| path.strip_prefix(&root.path).ok());
            let own: Vec<PathBuf> = own.map(Path::to_owned).collect();
            let scanner = Scanner::new(depth.unwrap_or(ScanDepth::Whole));
            let private = left.private.clone();
            let mut watched =
                WatchedRoot { root, place, exact, own, scanner, before, targets, private };
            notices.extend(watched.clean(&left.mounted, &[], user));
        }
        let created = absent.rename_created();
        // In the view of a supervisor, a mount may cover the path. The next start of the program sees the path itself.
        left.absent = absent.existing();
        let renamed = created.iter().filter(|path| !left.absent.contains(path));
        notices.extend(renamed.map(|path| {
            format!("{} is protected; what a command created there was renamed", path.display())
        }));
        let is_done = left.roots.is_empty() && left.absent.is_empty();
        (notices, (!is_done).then_some(left))
    }

    /// Returns whether all folders of the record have been missing for a long time.
    fn is_abandoned(&self, file: &File) -> bool {
        let age = file.metadata().and_then(|it| it.modified()).map(|at| at.elapsed());
        let is_gone = |path: &Path| {
            path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        matches!(age, Ok(Ok(age)) if age > KEPT) && self.roots.iter().all(|root| is_gone(&root.0))
    }

    /// Replaces an earlier record, and keeps its modification time.
    fn replace(&self, records: &Dir, name: &OsStr, earlier: &File) -> io::Result<()> {
        let new = format!("{UNFINISHED}{}", name.to_string_lossy());
        // A killed process may have left this file.
        let _ = records.remove_file(&new);
        replace_entry(records, name, &new, |file| {
            file.write_all(&serde_json::to_vec(self)?)?;
            file.set_modified(earlier.metadata()?.modified()?)
        })
    }
}

/// Cleans up after an interrupted run, by its locked record. The record stays if it can't be read, and while work
/// remains, which it then describes.
///
/// # Errors
///
/// Fails if the record can't be read. An invalid record is removed.
fn finish_record(
    records: &Dir,
    name: &OsStr,
    file: &File,
    user: &UserGitConfig,
    open: impl Fn(&Path) -> io::Result<Dir>,
) -> io::Result<Vec<String>> {
    let found = records.symlink_metadata(name)?;
    let own = file.metadata()?;
    if (found.dev(), found.ino()) != (own.dev(), own.ino()) {
        // Another process has finished this record meanwhile.
        return Err(io::ErrorKind::NotFound.into());
    }
    let record = read_record(file).inspect_err(|error| {
        if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) {
            let _ = records.remove_file(name);
        }
    })?;
    let (notices, left) = record.clean_up(user, open);
    match left.filter(|left| !left.is_abandoned(file)) {
        None => drop(records.remove_file(name)),
        Some(left) => {
            if let Err(error) = left.replace(records, name, file) {
                log::warn!("a record of cleanup could not be written: {error}");
            }
        }
    }
    Ok(notices)
}

/// Returns a path for the record of a new run.
pub fn new_record_path(state: &Path) -> PathBuf {
    state.join(RECORD_FOLDER).join(Uuid::now_v7().simple().to_string())
}

/// Makes files harmless that commands of killed runs created for git. Returns a sentence for each change.
pub fn finish_interrupted(state: &Path, user: impl FnOnce() -> UserGitConfig) -> Vec<String> {
    let user = LazyCell::new(user);
    let folder = state.join(RECORD_FOLDER);
    let Ok(records) = Dir::open_ambient_dir(&folder, ambient_authority()) else {
        return Vec::new();
    };
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let is_whole = |entry: &fs::DirEntry| !is_unfinished(&entry.file_name());
    let finished = entries.filter(is_whole).flat_map(|entry| {
        let path = entry.path();
        let finished = File::open(&path).and_then(|file| {
            match lock_within(&file, Duration::ZERO)? {
                // A command may have replaced a folder by a link meanwhile.
                true => finish_record(&records, &entry.file_name(), &file, &user, open_canonical),
                // The run is still active.
                false => Ok(Vec::new()),
            }
        });
        match finished {
            Ok(notices) => notices,
            // The run has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => vec![format!("{} can't be read: {error}", path.display())],
        }
    });
    finished.collect()
}

fn read_record(mut file: &File) -> io::Result<CleanupRecord> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The open folders that a supervisor needs to clean up after a killed engine.
#[cfg(target_os = "linux")]
pub(in crate::exec) struct DeferredCleanup {
    records: Dir,
    name: OsString,
    roots: Vec<(PathBuf, Dir)>,
}

#[cfg(target_os = "linux")]
impl DeferredCleanup {
    /// Opens all folders; must be called before mounting.
    pub(in crate::exec) fn open(policy: &SandboxPolicy) -> Option<Self> {
        let marker = policy.record_path.as_ref()?;
        let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority());
        let folder = marker.parent()?;
        // The engine writes its record before the first command.
        let _ = create_private_folder(folder);
        let roots = policy.repositories.iter();
        let roots = roots.filter_map(|path| Some((path.clone(), open_canonical(path).ok()?)));
        Some(Self {
            records: open(folder).ok()?,
            name: marker.file_name()?.to_owned(),
            roots: roots.collect(),
        })
    }

    /// Performs the cleanup in place of the engine.
    pub(in crate::exec) fn run(self) {
        let Ok(file) = self.records.open(&self.name) else { return };
        let file = file.into_std();
        // Another supervisor may be cleaning up.
        if file.lock().is_err() {
            return;
        }
        let open = |path: &Path| match self.roots.iter().find(|(root, _)| root == path) {
            Some((_, dir)) => dir.try_clone(),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        // The user's configuration stays with the engine, since it may hold secrets.
        let user = UserGitConfig::default();
        // The next start of the program does the remaining work.
        let _ = finish_record(&self.records, &self.name, &file, &user, open);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder may be missing only temporarily: its file system may be mounted again.
    #[test]
    fn a_record_stays_until_each_of_its_folders_was_cleaned() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().canonicalize().unwrap().join(name);
        let roots = ["a", "b"]
            .map(|name| RecordedRoot(path(name), FolderRole::WorkTree, vec![], GitItems::new()));
        let record = CleanupRecord {
            roots: roots.into(),
            mounted: Vec::new(),
            targets: vec![LinkTargets::new(), LinkTargets::new()],
            absent: AbsentPaths::default(),
            own: Vec::new(),
            private: Vec::new(),
            depths: vec![ScanDepth::Whole, ScanDepth::Whole],
        };
        let file = new_record_path(&path("state"));
        drop(record.write(&file).unwrap());
        fs::create_dir(path("a")).unwrap();
        fs::create_dir(path("away")).unwrap();
        symlink("away", path("b")).unwrap();
        let finish = || finish_interrupted(&path("state"), UserGitConfig::default);
        let hook = |root: &str| {
            fs::create_dir_all(path(root).join(".git/hooks")).unwrap();
            fs::write(path(root).join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::write(path(root).join(".git/hooks/post-checkout"), "#!/bin/sh\n").unwrap();
        };
        hook("a");
        assert!(finish().iter().any(|sentence| sentence.contains("post-checkout")));
        // Finished work is not repeated.
        hook("a");
        assert!(finish().iter().all(|sentence| sentence.contains("can't be opened")));
        fs::remove_file(path("b")).unwrap();
        assert_eq!(finish(), Vec::<String>::new());
        assert!(file.exists());
        hook("b");
        assert!(finish().iter().any(|sentence| sentence.contains("post-checkout")));
        assert!(!file.exists());
        // A folder in place of the record stands for an unreadable record.
        fs::create_dir(&file).unwrap();
        assert!(finish()[0].contains("can't be read") && file.exists());
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "{").unwrap();
        assert!(finish()[0].contains("can't be read") && !file.exists());
    }
}
