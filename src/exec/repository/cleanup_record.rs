//! The record of a run, by which the cleanup is done after the program was killed.

use std::cell::LazyCell;
use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[cfg(target_os = "linux")]
use cap_std::ambient_authority;
use cap_std::fs::Dir;
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
use crate::workspace::{TemporaryFile, create_private_folder, lock_within, open_canonical};

/// The folder for records, in the state folder, with a file for each run.
const RECORD_FOLDER: &str = "repositories";

/// The record of a run, in case it is killed.
#[derive(Serialize, Deserialize)]
pub(super) struct CleanupRecord {
    #[serde(with = "stored_path")]
    pub(super) roots: Vec<(PathBuf, FolderRole, Vec<PathBuf>, GitItems)>,
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
    /// What this program writes below protected paths.
    #[serde(default, with = "stored_path")]
    pub(super) own: Vec<PathBuf>,
    /// Folders that commands may write, and that are not scanned.
    #[serde(default, with = "stored_path")]
    pub(super) private: Vec<PathBuf>,
    /// How deep the roots are searched, in their order.
    #[serde(default)]
    pub(super) depths: Vec<ScanDepth>,
}

/// The beginning of the name of a record that is not written to its end.
const UNFINISHED: &str = ".";

fn is_unfinished(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

impl CleanupRecord {
    /// Writes the record, and returns the file, which is locked while open.
    pub(super) fn write(&self, path: &Path) -> io::Result<File> {
        if let Some(folder) = path.parent() {
            create_private_folder(folder)?;
        }
        // No other process finds it before it is locked and whole.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!("{UNFINISHED}{name}"));
        let new = TemporaryFile::create(new, 0o600)?;
        new.file().try_lock()?;
        new.file().write_all(&serde_json::to_vec(self)?)?;
        // An earlier record of the run stays.
        fs::hard_link(new.path(), path)?;
        new.file().try_clone()
    }

    /// Does the cleanup of an interrupted run.
    fn clean_up(self, user: &UserGitConfig, open: impl Fn(&Path) -> Option<Dir>) -> Vec<String> {
        let Self { roots, mounted, targets: led, absent, own, private, depths } = self;
        let led = led.into_iter().map(Some).chain(std::iter::repeat(None));
        let depths = depths.into_iter().chain(std::iter::repeat(ScanDepth::Whole));
        let watched =
            roots.into_iter().zip(led).zip(depths).filter_map(|((watched, led), depth)| {
                let (path, place, exact, before) = watched;
                let root = ScanRoot { dir: open(&path)?, path };
                let led = led.unwrap_or_else(|| cleanup::find_targets(&root, &before));
                let own = own.iter().filter_map(|path| path.strip_prefix(&root.path).ok());
                let own: Vec<PathBuf> = own.map(Path::to_owned).collect();
                Some(WatchedRoot {
                    root,
                    place,
                    exact,
                    own,
                    scanner: Scanner::new(depth),
                    before,
                    targets: led,
                    private: private.clone(),
                })
            });
        let cleaned = watched.flat_map(|mut watched| watched.clean(&mounted, &[], user));
        let renamed = absent.rename_created().into_iter().map(|path| {
            format!("{} is protected; what a command created there was renamed", path.display())
        });
        cleaned.chain(renamed).collect()
    }
}

/// Returns a path for the record of a new run.
pub fn new_record_path(state: &Path) -> PathBuf {
    state.join(RECORD_FOLDER).join(Uuid::now_v7().simple().to_string())
}

/// Makes harmless what commands of killed runs created for git. Returns a sentence for each change.
pub fn finish_interrupted(state: &Path, user: impl FnOnce() -> UserGitConfig) -> Vec<String> {
    let user = LazyCell::new(user);
    let entries = fs::read_dir(state.join(RECORD_FOLDER)).into_iter().flatten().flatten();
    let is_whole = |entry: &fs::DirEntry| !is_unfinished(&entry.file_name());
    let finished = entries.filter(is_whole).flat_map(|entry| {
        let path = entry.path();
        let left = File::open(&path).and_then(|file| match lock_within(&file, Duration::ZERO)? {
            true => read_record(&file).map(Some),
            // The run is still active.
            false => Ok(None),
        });
        // A command may have put a link in its place meanwhile.
        let open = |path: &Path| open_canonical(path).ok();
        let notices = match left {
            Ok(None) => return Vec::new(),
            Ok(Some(record)) => record.clean_up(&user, open),
            // The run has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => vec![format!("{} can't be read: {error}", path.display())],
        };
        let _ = fs::remove_file(&path);
        notices
    });
    finished.collect()
}

fn read_record(mut file: &File) -> io::Result<CleanupRecord> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// What a supervisor needs to clean up after a killed engine.
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

    /// Does the cleanup that the engine would have done.
    pub(in crate::exec) fn run(self) {
        let Ok(file) = self.records.open(&self.name) else { return };
        let file = file.into_std();
        // Another supervisor may be doing it.
        if file.lock().is_err() || self.records.symlink_metadata(&self.name).is_err() {
            return;
        }
        if let Ok(record) = read_record(&file) {
            // The user's configuration stays with the engine: it may hold secrets.
            record.clean_up(&UserGitConfig::default(), |path| {
                let (_, dir) = self.roots.iter().find(|(root, _)| root == path)?;
                dir.try_clone().ok()
            });
        }
        let _ = self.records.remove_file(&self.name);
    }
}
