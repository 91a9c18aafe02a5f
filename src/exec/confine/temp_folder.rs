//! The private folder for temporary files: created for the first command, and removed with the engine, even if the
//! engine is killed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use rustix::process::geteuid;

use super::policy::{SandboxPolicy, TempOwner};
use crate::exec::protected::snapshot::remove_entry;
use crate::port::{lock, unique_id};
use crate::workspace::remove_tree;

/// Creates the folder, if the supervisors own it.
///
/// # Errors
///
/// Fails when the system denies it, and when the path exists but belongs to another user.
pub(in crate::exec) fn create(policy: &SandboxPolicy) -> io::Result<()> {
    if policy.temp_owner == TempOwner::Caller {
        return Ok(());
    }
    let made = match DirBuilder::new().mode(0o700).create(&policy.temp) {
        // Another supervisor of this engine created it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(&policy.temp)?;
            let is_ours = found.is_dir() && found.uid() == geteuid().as_raw();
            if is_ours { Ok(()) } else { Err(error) }
        }
        made => made,
    };
    made.map(|()| lock_folder(&policy.temp))
}

/// The locked folders of this process.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Locks the folder for the life of this process, so that it does not count as abandoned and no other supervisor
/// removes it.
fn lock_folder(folder: &Path) {
    // Without the lock, the folder is still protected by its age.
    let locked = File::open(folder).ok().filter(|folder| folder.try_lock_shared().is_ok());
    lock(&HELD).extend(locked);
}

/// The minimum age of an abandoned folder that is removed.
const MIN_AGE: Duration = Duration::from_secs(3_600);

/// The prefix of the names of folders for temporary files.
pub const TEMP_PREFIX: &str = "architect-";

/// Returns an unpredictable name for a folder for temporary files, with which it is removed later if it is abandoned.
pub fn new_temp_name() -> String {
    // The random half of the ID; paths of sockets must be short.
    format!("{TEMP_PREFIX}{}", &unique_id().simple().to_string()[20..])
}

/// Removes old folders with this prefix that are not locked by any process: their engines and supervisors were killed
/// together.
pub fn remove_abandoned(around: &Path, prefix: &str) {
    let Some(before) = SystemTime::now().checked_sub(MIN_AGE) else { return };
    for entry in fs::read_dir(around).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| {
            name.strip_prefix(prefix).is_some_and(|rest| {
                rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
        });
        let is_left = |data: &fs::Metadata| {
            data.is_dir()
                && data.uid() == geteuid().as_raw()
                && data.modified().is_ok_and(|at| at < before)
        };
        if is_named
            && entry.metadata().is_ok_and(|data| is_left(&data))
            && let Ok(folder) = File::open(entry.path())
            && folder.try_lock().is_ok()
            && let Err(error) = remove_tree(&entry.path())
        {
            log::debug!("could not remove {}: {error}", entry.path().display());
        }
    }
}

/// The temporary files of a killed engine, to be removed by a supervisor.
#[cfg(target_os = "linux")]
pub(in crate::exec) struct TempCleanup {
    /// The parent folder, opened before any mount.
    around: cap_std::fs::Dir,
    path: std::path::PathBuf,
}

#[cfg(target_os = "linux")]
impl TempCleanup {
    /// Opens the folders if the supervisors own them. Must be called before mounting.
    pub(in crate::exec) fn open(policy: &SandboxPolicy) -> Option<Self> {
        if policy.temp_owner == TempOwner::Caller {
            return None;
        }
        let path = policy.temp.canonicalize().ok()?;
        let authority = cap_std::ambient_authority();
        let around = cap_std::fs::Dir::open_ambient_dir(path.parent()?, authority).ok()?;
        Some(Self { around, path })
    }

    /// Removes the folder, unless other supervisors still use it. In the view of a command, the folder may be mounted
    /// at `/tmp`; without it, anything mounted below is not found.
    pub(in crate::exec) fn run(self) {
        let Self { around, path } = self;
        // A failed attempt gives up the shared lock, so that one of two simultaneous attempts succeeds.
        if !lock(&HELD).iter().all(|held| held.try_lock().is_ok()) {
            return;
        }
        // In a mount namespace, the folder itself may be a mount point.
        let _ = rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH);
        // It may also be mounted at `/tmp`, with further mounts in it that block its removal.
        let usual = Path::new("/tmp");
        let same = |a: &fs::Metadata, b: &cap_std::fs::Metadata| {
            use cap_std::fs::MetadataExt;
            (a.dev(), a.ino()) == (b.dev(), b.ino())
        };
        let own = path.file_name().and_then(|name| around.metadata(name).ok());
        if own.zip(fs::metadata(usual).ok()).is_some_and(|(own, found)| same(&found, &own)) {
            let _ = rustix::mount::unmount(usual, rustix::mount::UnmountFlags::DETACH);
        }
        if let Some(name) = path.file_name() {
            let _ = around.remove_dir_all(name).or_else(|_| remove_entry(&around, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault T5: in the view of another supervisor, its workspace is mounted below this folder.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_folder_is_removed_by_the_last_supervisor() {
        let around = tempfile::tempdir().unwrap();
        let temp = around.path().join("t");
        let policy = SandboxPolicy {
            temp: temp.clone(),
            temp_owner: TempOwner::Supervisors,
            ..SandboxPolicy::default()
        };
        create(&policy).unwrap();
        let other = File::open(&temp).unwrap();
        other.try_lock_shared().unwrap();
        TempCleanup::open(&policy).unwrap().run();
        assert!(temp.is_dir());
        // The first supervisor has given up its lock.
        assert!(other.try_lock().is_ok());
        drop(other);
        TempCleanup::open(&policy).unwrap().run();
        assert!(!temp.exists());
    }

    #[test]
    fn abandoned_folders_are_removed() {
        let around = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - 2 * MIN_AGE;
        for name in ["t-0123456789ab", "t-0123456789ac", "t-0123456789ad", "t-other", "note"] {
            let folder = around.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("file"), "").unwrap();
            if name != "t-0123456789ad" {
                File::open(&folder).unwrap().set_modified(old).unwrap();
            }
        }
        let held = File::open(around.path().join("t-0123456789ac")).unwrap();
        held.try_lock_shared().unwrap();
        remove_abandoned(around.path(), "t-");
        let names = fs::read_dir(around.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["note", "t-0123456789ac", "t-0123456789ad", "t-other"]);
    }
}
