//! Hidden and protected files, in their state when a worker was confined.
//!
//! A mount covers an existing file, and disappears when a program outside replaces the file: by renaming a new file
//! over it, as `docker login` does, or by creating a socket again, as a daemon does. A missing file is not covered at
//! all. So each worker records the files that it covers, and accepts no further commands once these have been replaced.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::exec::confine::policy::{SandboxMode, SandboxPolicy};
use crate::exec::confine::{Enforcement, RUNTIME_FOLDERS, SandboxGap, named_sockets};

/// The files that a worker covers.
#[derive(Debug, Default)]
pub(in crate::exec) struct CoveredPaths {
    /// Hidden and protected paths.
    paths: BTreeMap<PathBuf, Identity>,
    /// Sockets of other programs; `None` if access rules also apply to sockets that are created later.
    sockets: Option<Sockets>,
}

#[derive(Debug)]
struct Sockets {
    /// The sockets found at the start; `None` if the list could not be read.
    found: Option<BTreeMap<PathBuf, Identity>>,
    /// Folders of the command itself, and folders that are covered as a whole.
    passed_over: Vec<PathBuf>,
    /// Entries of the folder for temporary files that stay uncovered.
    visible: Vec<PathBuf>,
}

/// The identities of a path itself and of its target: device, inode number (which may be reused), and creation time;
/// `None` if the path or target does not exist.
type Identity = [Option<(u64, u64, Option<SystemTime>)>; 2];

/// The usual folder for temporary files, which a private folder replaces for commands.
const TEMPORARY: &str = "/tmp";

fn identity(path: &Path) -> Identity {
    let numbers = |found: Metadata| (found.dev(), found.ino(), found.created().ok());
    [path.symlink_metadata().ok().map(numbers), path.metadata().ok().map(numbers)]
}

impl CoveredPaths {
    /// Records the existing paths that a policy covers.
    pub(in crate::exec) fn by(policy: &SandboxPolicy) -> Self {
        if policy.mode == SandboxMode::Off {
            return Self::default();
        }
        let lent = policy.copied.iter().map(|lent| &lent.file);
        let paths = policy.hidden.iter().chain(&policy.protected).chain(&policy.links).chain(lent);
        let paths = paths.map(|path| (path.clone(), identity(path))).collect();
        let own = [&policy.workspace, &policy.temp].into_iter().chain(&policy.writable).cloned();
        let passed_over = own.chain(RUNTIME_FOLDERS.map(PathBuf::from)).collect();
        let mut sockets = Sockets { found: None, passed_over, visible: visible_entries(policy) };
        sockets.found = sockets.now().ok();
        Self { paths, sockets: Some(sockets) }
    }

    /// Drops the sockets if access rules apply to them, or if nothing covers them.
    pub(in crate::exec) fn limited_to(&mut self, enforced: &Enforcement) {
        if !enforced.gaps.contains(&SandboxGap::LaterSockets) {
            self.sockets = None;
        }
    }

    /// Returns whether a file now exists that is not covered.
    pub(in crate::exec) fn is_outdated(&self) -> bool {
        self.replaced().next().is_some() || self.sockets.as_ref().is_some_and(Sockets::has_more)
    }

    /// Returns the paths that now hold another file, which is not covered.
    pub(in crate::exec) fn replaced(&self) -> impl Iterator<Item = &PathBuf> {
        let is_new = |(path, before): &(&PathBuf, &Identity)| {
            let now = identity(path);
            now != **before && now != Identity::default()
        };
        self.paths.iter().filter(is_new).map(|(path, _)| path)
    }
}

impl Sockets {
    /// Returns whether there are, or may be, other sockets than at the start.
    fn has_more(&self) -> bool {
        let (Some(found), Ok(now)) = (&self.found, self.now()) else { return true };
        now.iter().any(|(path, now)| found.get(path) != Some(now))
    }

    fn now(&self) -> io::Result<BTreeMap<PathBuf, Identity>> {
        let is_socket = |path: &PathBuf| {
            path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
        };
        let is_passed_over = |path: &PathBuf| {
            let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let is_below = |folders: &[PathBuf]| folders.iter().any(|one| real.starts_with(one));
            is_below(&self.passed_over) || real.starts_with(TEMPORARY) && !is_below(&self.visible)
        };
        let found =
            named_sockets()?.into_iter().filter(|path| is_socket(path) && !is_passed_over(path));
        Ok(found.map(|path| (path.clone(), identity(&path))).collect())
    }
}

/// Returns the top entries of the folder for temporary files that commands need.
fn visible_entries(policy: &SandboxPolicy) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let guarded = policy.protected.iter().chain(&policy.hidden).chain(&policy.readable);
    let guarded = guarded.chain(&policy.visible);
    let needed = guarded.chain([&policy.workspace]).chain(&policy.writable).chain(&home);
    let real = needed.filter_map(|path| path.canonicalize().ok());
    // The first three components are the root, the folder itself, and the name of the entry.
    let tops = real.filter(|path| path.starts_with(TEMPORARY));
    tops.map(|path| path.components().take(3).collect()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn files_created_or_replaced_later_are_not_covered() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("there"), "").unwrap();
        let _first = UnixListener::bind(path("first")).unwrap();
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            hidden: vec![path("there"), path("later")],
            ..SandboxPolicy::off("/w")
        };
        let covered = CoveredPaths::by(&policy);
        assert!(!covered.is_outdated());
        fs::write(path("there"), "changed").unwrap();
        assert!(!covered.is_outdated());
        fs::write(path("new"), "").unwrap();
        fs::rename(path("new"), path("there")).unwrap();
        assert!(covered.is_outdated());
        let covered = CoveredPaths::by(&policy);
        // A removed file need not be covered.
        fs::remove_file(path("there")).unwrap();
        assert!(!covered.is_outdated());
        fs::write(path("later"), "").unwrap();
        assert!(covered.is_outdated());
        let mut covered = CoveredPaths::by(&policy);
        let _second = UnixListener::bind(path("second")).unwrap();
        assert!(covered.is_outdated());
        covered.limited_to(&Enforcement::none());
        assert!(!covered.is_outdated());
    }
}
