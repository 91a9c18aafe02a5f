//! Merges changes of a repository's configuration from the copy that commands write.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt as _};
use rustix::fs::OFlags;
use uuid::Uuid;

use super::scan::{self, MAX_CONFIG};

/// The number of attempts, and the pause between them, while a configuration is locked by git.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Replaces a file in a folder that commands may write, whatever exists at its path.
pub(super) fn replace_file(temp: &Dir, folder: &Path, content: &[u8]) -> io::Result<()> {
    temp.create_dir_all(folder)?;
    let new = folder.join(Uuid::now_v7().simple().to_string());
    let mut file = temp.open_with(&new, OpenOptions::new().write(true).create_new(true))?;
    let written = file.write_all(content);
    written.and_then(|()| temp.rename(&new, temp, folder.join("config"))).inspect_err(|_| {
        let _ = temp.remove_file(&new);
    })
}

/// Writes a configuration as git does, through a lock file.
pub(super) fn merge_config(owner: &Dir, old: &[u8], new: &[u8]) -> io::Result<()> {
    let mut lock = create_lock(owner)?;
    let mut write = || {
        if scan::read(owner, Path::new("config"), MAX_CONFIG)? != old {
            return Err(io::Error::other("it was changed meanwhile"));
        }
        lock.write_all(new)?;
        if let Ok(meta) = owner.metadata("config") {
            owner.set_permissions("config.lock", meta.permissions())?;
        }
        // Renaming would remove the mount over the file in every running command and server.
        if in_place(owner, old.len(), new).is_ok() {
            return owner.remove_file("config.lock");
        }
        owner.rename("config.lock", owner, "config")
    };
    write().inspect_err(|_| {
        let _ = owner.remove_file("config.lock");
    })
}

/// Creates the lock file of a configuration. Only the user can access it: the content may be secret, and the
/// permissions of the configuration are set later.
fn create_lock(owner: &Dir) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut attempt = 0;
    loop {
        match owner.open_with("config.lock", &options) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && attempt < LOCK_ATTEMPTS =>
            {
                attempt += 1;
                std::thread::sleep(LOCK_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Overwrites a configuration in place. It is valid at every moment: the surplus is filled with blank lines before it
/// is cut off.
fn in_place(owner: &Dir, old: usize, new: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut config = owner.open_with("config", &options)?;
    let mut padded = new.to_vec();
    padded.resize(old.max(new.len()), b'\n');
    config.write_all(&padded)?;
    config.set_len(new.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn only_the_user_can_read_the_lock_file() {
        let folder = tempfile::tempdir().unwrap();
        let owner = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let _lock = create_lock(&owner).unwrap();
        let found = folder.path().join("config.lock").metadata().unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    }
}
