//! The private folder for temporary files: made when the first command is to be run, and gone with the engine, also when
//! that is killed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

use rustix::process::geteuid;

use super::policy::{Policy, TempOwner};

/// Makes the folder, if that is for the supervisors to do.
///
/// # Errors
///
/// Fails when the system refuses it, and when something is there that is not ours.
pub(super) fn make(policy: &Policy) -> io::Result<()> {
    if policy.temp_owner == TempOwner::Asker {
        return Ok(());
    }
    match DirBuilder::new().mode(0o700).create(&policy.temp) {
        // Another supervisor of this engine has made it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(&policy.temp)?;
            let is_ours = found.is_dir() && found.uid() == geteuid().as_raw();
            if is_ours { Ok(()) } else { Err(error) }
        }
        made => made,
    }
}

/// What an engine leaves behind that was killed.
#[cfg(target_os = "linux")]
pub(super) struct Leftover(Option<Folder>);

#[cfg(target_os = "linux")]
struct Folder {
    /// The folder around it, as it was reached before anything was mounted.
    around: cap_std::fs::Dir,
    path: std::path::PathBuf,
}

#[cfg(target_os = "linux")]
impl Leftover {
    /// Returns what is to be cleared away some day; to be called before there are other mounts.
    pub(super) fn of(policy: &Policy) -> Self {
        let path = match policy.temp_owner {
            TempOwner::Asker => None,
            TempOwner::Supervisors => policy.temp.canonicalize().ok(),
        };
        Self(path.and_then(|path| {
            let around =
                cap_std::fs::Dir::open_ambient_dir(path.parent()?, cap_std::ambient_authority());
            Some(Folder { around: around.ok()?, path })
        }))
    }

    /// Clears it away. Of several supervisors each tries, so the last one finds nobody who still writes there.
    pub(super) fn clear(self) {
        let Some(Folder { around, path }) = self.0 else { return };
        // In a namespace of ours it may be mounted at itself.
        let _ = rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH);
        // Or there, with what is mounted in it, which could not be removed otherwise.
        let usual = std::path::Path::new("/tmp");
        let same = |a: &fs::Metadata, b: &cap_std::fs::Metadata| {
            use cap_std::fs::MetadataExt;
            (a.dev(), a.ino()) == (b.dev(), b.ino())
        };
        let own = path.file_name().and_then(|name| around.metadata(name).ok());
        if own.zip(fs::metadata(usual).ok()).is_some_and(|(own, found)| same(&found, &own)) {
            let _ = rustix::mount::unmount(usual, rustix::mount::UnmountFlags::DETACH);
        }
        if let Some(name) = path.file_name() {
            let _ = around.remove_dir_all(name);
        }
    }
}
