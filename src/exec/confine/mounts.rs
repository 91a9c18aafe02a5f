//! The files as a command sees them: all to be read, few to be written, some not there.
//!
//! To be called in a mount namespace of our own, by a process that may mount.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
    mount_bind_recursive, mount_change, mount_remount, move_mount, open_tree,
};

use crate::exec::policy::{Lent, Mode, Policy};

/// What was made of the files.
pub(super) struct View {
    /// What may be written, as it is named now.
    pub writable: Vec<PathBuf>,
    /// The folder for temporary files, as it is named now.
    pub temp: PathBuf,
}

/// Makes the view that a policy describes. `sockets` are those of other programs, which nobody is to reach.
pub(super) fn arrange(policy: &Policy, sockets: &[PathBuf]) -> io::Result<View> {
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    if policy.mode == Mode::Off {
        processes()?;
        return Ok(View { writable: vec![PathBuf::from("/")], temp: policy.temp.clone() });
    }
    let mut writable = Vec::new();
    if policy.mode == Mode::WorkspaceWrite {
        writable.push(policy.workspace.clone());
        writable.extend(policy.writable.iter().cloned());
    }
    let mut writable: Vec<PathBuf> = real(&writable).collect();
    let own = policy.temp.canonicalize()?;
    let temp = temporary(policy, &own, &writable)?;
    for path in &writable {
        bind(path, path)?;
    }
    if temp == own {
        bind(&own, &own)?;
    }
    writable.push(temp.clone());
    if shared_memory()? {
        writable.push(PathBuf::from(SHARED));
    }
    for mounted in mounted()? {
        if !writable.iter().any(|path| mounted.path.starts_with(path)) {
            mounted.read_only()?;
        }
    }
    for folder in ways(policy, &writable) {
        bind(&folder, &folder)?;
    }
    for path in real(&policy.protected) {
        bind(&path, &path)?;
        Mounted { flags: flags_of(&path)?, path }.read_only()?;
    }
    for path in &policy.links {
        // Where the system can't, what becomes of it is looked at after each command.
        let _ = mount_link(path, path);
    }
    for lent in &policy.lent {
        lend(lent, &temp.join(&policy.copies))?;
    }
    for path in real(&policy.hidden) {
        hide(&path)?;
    }
    for path in sockets.iter().filter(|path| !writable.iter().any(|own| path.starts_with(own))) {
        // It may be gone by now.
        let _ = mount_bind("/dev/null", path);
    }
    processes()?;
    std::env::set_current_dir("/")?;
    Ok(View { writable, temp })
}

/// Returns those paths that exist, without symbolic links: as the list of what is mounted names them.
fn real(paths: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    paths.iter().filter_map(|path| path.canonicalize().ok())
}

/// Puts the private temporary folder where every program looks for one, unless something that is needed lies there.
fn temporary(policy: &Policy, own: &Path, writable: &[PathBuf]) -> io::Result<PathBuf> {
    let usual = Path::new("/tmp");
    let mut needed = writable.iter().chain([&policy.workspace]);
    if needed.any(|path| path.starts_with(usual)) {
        return Ok(own.to_owned());
    }
    bind(own, usual)?;
    Ok(usual.to_owned())
}

/// Returns the writable folders on the way to what is protected or hidden, outer ones first. Such a folder could be
/// renamed, and another one put in its place; but not if something is mounted at it.
fn ways(policy: &Policy, writable: &[PathBuf]) -> BTreeSet<PathBuf> {
    let lent = policy.lent.iter().map(|lent| &lent.file);
    let guarded = policy.protected.iter().chain(&policy.hidden).chain(&policy.links).chain(lent);
    let folders = guarded.filter_map(|path| path.parent()?.canonicalize().ok());
    let mut ways = BTreeSet::new();
    for folder in folders {
        let is_inside =
            |way: &&Path| writable.iter().any(|root| way.starts_with(root) && way != root);
        ways.extend(folder.ancestors().filter(is_inside).map(Path::to_owned));
    }
    ways
}

/// Mounts a symbolic link, which may be in the place of a file. It can't be renamed, removed or replaced from then on.
fn mount_link(link: &Path, at: &Path) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(CWD, link, flags)?;
    Ok(move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Puts a link to a copy in the place of a file. A program that writes the file anew, beside it and then in its place,
/// follows the link first, as git does; so it writes the copy.
fn lend(lent: &Lent, copies: &Path) -> io::Result<()> {
    let folder = copies.join(&lent.copy);
    fs::create_dir_all(&folder)?;
    let (copy, link) = (folder.join("config"), folder.join("link"));
    std::os::unix::fs::symlink(&copy, &link)?;
    let mounted = mount_link(&link, &lent.file);
    fs::remove_file(&link)?;
    if mounted.is_err() {
        bind(&lent.file, &lent.file)?;
        Mounted { flags: flags_of(&lent.file)?, path: lent.file.clone() }.read_only()?;
    }
    Ok(())
}

fn bind(path: &Path, at: &Path) -> io::Result<()> {
    mount_bind_recursive(path, at).map_err(|error| about(error, "bind", at))
}

fn about(error: Errno, what: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("could not {what} {}: {error}", path.display()))
}

/// Where programs share memory.
const SHARED: &str = "/dev/shm";

/// Memory that programs share is private, too. Returns whether there is any.
fn shared_memory() -> io::Result<bool> {
    let path = Path::new(SHARED);
    if !path.is_dir() {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", path, "tmpfs", flags, c"mode=1777").map_err(|e| about(e, "mount", path))?;
    Ok(true)
}

/// Covers a folder with an empty one, and a file with nothing.
fn hide(path: &Path) -> io::Result<()> {
    let hidden = if path.is_dir() {
        let flags =
            MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", path, "tmpfs", flags, c"size=4k,mode=555")
    } else {
        mount_bind("/dev/null", path)
    };
    hidden.map_err(|error| about(error, "hide", path))
}

/// Shows the processes of this namespace alone. Where that is not allowed, the others are seen, and cannot be touched.
fn processes() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    match mount("proc", "/proc", "proc", flags, None) {
        Ok(()) | Err(Errno::PERM | Errno::ACCESS | Errno::BUSY) => Ok(()),
        Err(error) => Err(about(error, "mount", Path::new("/proc"))),
    }
}

/// Something that is mounted.
struct Mounted {
    path: PathBuf,
    flags: MountFlags,
}

impl Mounted {
    fn read_only(&self) -> io::Result<()> {
        if self.flags.contains(MountFlags::RDONLY) {
            return Ok(());
        }
        let flags = MountFlags::BIND | MountFlags::RDONLY | self.flags;
        match mount_remount(&self.path, flags, c"") {
            Ok(()) => Ok(()),
            // Nobody can reach what lies below another mount, or has no path at all.
            Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            // Somebody else's folder that we may not look into; neither may the command.
            Err(Errno::ACCESS) => Ok(()),
            Err(error) => Err(about(error, "make read-only", &self.path)),
        }
    }
}

fn flags_of(path: &Path) -> io::Result<MountFlags> {
    let all = mounted()?;
    // The last one at a path is the one that is seen.
    let last = all.iter().rfind(|mounted| mounted.path == path);
    Ok(last.map_or(MountFlags::empty(), |mounted| mounted.flags))
}

fn mounted() -> io::Result<Vec<Mounted>> {
    let list = fs::read("/proc/self/mountinfo")?;
    Ok(list.split(|byte| *byte == b'\n').filter_map(entry).collect())
}

/// Reads a line: number, parent, device, root, path, options, and more.
fn entry(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ').skip(4);
    let path = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let options = std::str::from_utf8(fields.next()?).ok()?;
    let flag = |option| match option {
        "ro" => MountFlags::RDONLY,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        _ => MountFlags::empty(),
    };
    let mut flags: MountFlags = options.split(',').map(flag).collect();
    if !flags.intersects(MountFlags::NOATIME | MountFlags::RELATIME) {
        // This one is written by leaving the others out.
        flags |= MountFlags::STRICTATIME;
    }
    Some(Mounted { path, flags })
}

/// Spaces, tabs, line ends and backslashes are written as octal numbers.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, more @ ..] = rest {
        let number = (*first == b'\\')
            .then(|| more.get(..3).and_then(|digits| std::str::from_utf8(digits).ok()))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(number.unwrap_or(*first));
        rest = if number.is_some() { &more[3..] } else { more };
    }
    plain
}

/// Returns the sockets that have a path, as far as this network knows them.
pub(super) fn sockets() -> Vec<PathBuf> {
    let list = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let path = |line: &str| {
        line.split_whitespace().nth(7).filter(|path| path.starts_with('/')).map(PathBuf::from)
    };
    let mut paths: Vec<PathBuf> = list.lines().filter_map(path).collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_flags() {
        let line = br"36 35 98:0 / /mnt\040a/b rw,noatime,nosuid shared:1 - ext3 /dev/root rw";
        let mounted = entry(line).unwrap();
        assert_eq!(mounted.path, Path::new("/mnt a/b"));
        assert_eq!(mounted.flags, MountFlags::NOATIME | MountFlags::NOSUID);
    }
}
