//! The file system view of a command: readable, partly writable, partly hidden.
//!
//! Mounting requires a new mount namespace, and the privilege to mount.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode as FileMode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_bind_recursive, mount_change, mount_remount, move_mount, open_tree, unmount,
};

use super::landlock;
use super::policy::{CopiedFile, NetworkAccess, RedactedFile, SandboxMode, SandboxPolicy};
use crate::exec::command_env::Variable;
use crate::exec::package_caches::{OverlayFolders, PackageCache};
use crate::workspace::open_canonical_parent;

/// The result of the mounts.
pub(super) struct MountView {
    /// Writable paths, by their names in the namespace.
    pub writable: Vec<PathBuf>,
    /// Variables that describe the mounts to commands.
    pub env: Vec<Variable>,
    /// The overlays over the user's caches, locked until this value is dropped.
    pub layers: Option<OverlayFolders>,
}

/// An open folder that stays reachable when something is mounted over it.
struct FolderHandle {
    path: PathBuf,
    /// The path without links, as reported by the system.
    real_path: PathBuf,
    file: OwnedFd,
}

impl FolderHandle {
    fn open(path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Self::new(path, openat(CWD, path, flags, FileMode::empty()).ok()?)
    }

    /// Opens a path that contains no links.
    fn open_without_links(path: &Path) -> Option<Self> {
        Self::new(path, open_without_links(path).ok()?)
    }

    fn new(path: &Path, file: OwnedFd) -> Option<Self> {
        let real_path = fs::read_link(path_of_file(&file)).ok()?;
        Some(Self { path: path.to_owned(), real_path, file })
    }

    /// Mounts the folder at its original path, which is created if a mount above does not contain it.
    ///
    /// # Errors
    ///
    /// Fails if another process has removed or renamed the folder. The mount point is then not created, since it would
    /// be on the user's file system.
    fn bind(&self) -> io::Result<()> {
        if self.path.symlink_metadata().is_err() {
            let file = path_of_file(&self.file);
            if fs::read_link(&file)? != self.real_path {
                return Err(describe_error(Errno::NOENT, "bind", &self.path));
            }
            if let Some(parent) = self.path.parent() {
                fs::create_dir_all(parent)?;
            }
            if fs::metadata(file)?.is_dir() {
                fs::create_dir(&self.path)?;
            } else {
                fs::File::create(&self.path)?;
            }
        }
        self.bind_at(&self.path)
    }

    fn bind_at(&self, at: &Path) -> io::Result<()> {
        let file = path_of_file(&self.file);
        mount_bind_recursive(file, at).map_err(|error| describe_error(error, "bind", at))
    }
}

/// Returns the path in `/proc` that refers to an open file.
fn path_of_file(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Creates the mounts that a policy describes, and hides `sockets`, which belong to other programs.
pub(super) fn set_up_mounts(policy: &SandboxPolicy, sockets: &[PathBuf]) -> io::Result<MountView> {
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let variables =
        |temp: &Path| ["TMPDIR", "TMP", "TEMP"].map(|name| (name.into(), temp.into())).to_vec();
    let everywhere = [PathBuf::from("/")];
    if policy.mode == SandboxMode::Off {
        if policy.network != NetworkAccess::On {
            hide_runtime(policy, &[])?;
            hide_sockets(sockets, |_| false);
        }
        mount_terminals()?;
        mount_proc()?;
        let env = variables(&policy.temp);
        return Ok(MountView { writable: everywhere.to_vec(), env, layers: None });
    }
    let mut handles = Vec::new();
    let mut workspace =
        policy.workspace.canonicalize().ok().and_then(|path| FolderHandle::open(&path));
    if policy.mode == SandboxMode::WorkspaceWrite {
        handles.extend(workspace.take());
        // A command may have replaced one of these folders, or a folder above, by a link.
        handles.extend(
            policy.writable.iter().filter_map(|path| FolderHandle::open_without_links(path)),
        );
    }
    // Inner folders come last: they stay mount points, which commands cannot replace even if an outer folder is
    // writable.
    handles.sort_by_key(|handle| handle.path.components().count());
    let mut writable: Vec<PathBuf> = handles.iter().map(|handle| handle.path.clone()).collect();
    let own = policy.temp.canonicalize()?;
    // The next mounts cover some of these folders.
    let temp_handle = FolderHandle::open(&own).ok_or(io::ErrorKind::NotFound)?;
    let mut sockets = sockets.to_vec();
    sockets.extend(mounted_sockets()?);
    let (caches, env, layers) = if policy.mode == SandboxMode::WorkspaceWrite {
        mount_caches(policy, &writable)?
    } else {
        (Vec::new(), Vec::new(), None)
    };
    let (temp, mut kept) = mount_temp(policy, &temp_handle, &writable, &caches)?;
    for handle in &handles {
        handle.bind()?;
    }
    if temp == own {
        temp_handle.bind()?;
    }
    writable.push(temp.clone());
    writable.extend(caches);
    if !landlock::is_available() {
        hide_devices()?;
    }
    if mount_shared_memory()? {
        writable.push(PathBuf::from(SHARED_MEMORY));
        let covered = handles.iter().chain(&workspace);
        for handle in covered.filter(|handle| handle.path.starts_with(SHARED_MEMORY)) {
            handle.bind()?;
            kept.push(handle.path.clone());
        }
    }
    hide_runtime(policy, &writable)?;
    let protected = real_paths(&policy.protected).collect();
    let writable = WritablePaths { roots: writable, mounted_again: kept, protected };
    for mounted in list_mounts()? {
        if !writable.contains(&mounted.path) {
            mounted.make_read_only()?;
        }
    }
    mount_terminals()?;
    for folder in writable_ancestors(policy, &writable) {
        bind(&folder, &folder)?;
    }
    for path in real_paths(&policy.protected) {
        // The private caches are below protected paths, and stay writable.
        bind_read_only(path)?;
    }
    let links = policy.protected.iter().filter(|path| path.is_symlink()).chain(&policy.links);
    for path in links {
        // If the system does not support this, links are checked after each command.
        let _ = mount_link(path, path);
    }
    for lent in &policy.copied {
        mount_copy(lent, &temp.join(&policy.copies))?;
    }
    hide_paths(policy)?;
    // If the system does not support this, these files stay hidden.
    let _ = show_redacted(&policy.redacted, &temp.join(&policy.copies));
    hide_sockets(&sockets, |path| writable.contains(path));
    mount_proc()?;
    std::env::set_current_dir("/")?;
    let env = variables(&temp).into_iter().chain(env).collect();
    Ok(MountView { writable: writable.roots, env, layers })
}

/// Writable paths.
struct WritablePaths {
    roots: Vec<PathBuf>,
    /// Mounts in private folders of the commands; read-only unless they are, or contain, another root.
    mounted_again: Vec<PathBuf>,
    /// Protected paths; read-only unless they are in another root below, as the private caches are.
    protected: Vec<PathBuf>,
}

impl WritablePaths {
    fn contains(&self, path: &Path) -> bool {
        let longest = |roots: &[PathBuf]| {
            let around = roots.iter().filter(|root| path.starts_with(root));
            around.map(|root| root.components().count()).max()
        };
        let own = longest(&self.roots);
        own.is_some() && own >= longest(&self.mounted_again) && own > longest(&self.protected)
    }
}

/// Opens an absolute path that contains no links, without read or write access.
pub(super) fn open_without_links(path: &Path) -> io::Result<OwnedFd> {
    let (folder, name) = open_canonical_parent(path)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(&folder, name, flags, FileMode::empty())?;
    if FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Symlink {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(place)
}

/// Returns the existing ones of these paths, with links resolved as in the list of mounts.
pub(super) fn real_paths(paths: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    paths.iter().filter_map(|path| path.canonicalize().ok())
}

/// Mounts private folders over the user's caches. Returns the paths that become writable, and variables that name
/// private folders for the caches without a mount.
fn mount_caches(
    policy: &SandboxPolicy,
    writable: &[PathBuf],
) -> io::Result<(Vec<PathBuf>, Vec<Variable>, Option<OverlayFolders>)> {
    let caches = &policy.caches;
    let layers = OverlayFolders::take(caches);
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut others = Vec::new();
    for cache in &caches.caches {
        let folder = cache.folder.as_ref().and_then(|folder| folder.canonicalize().ok());
        let folder = folder.filter(|folder| folder.is_dir());
        if let Some(folder) = &folder {
            // The user has allowed the folder, or it is in one that is already mounted.
            if writable.iter().chain(&paths).any(|path| folder.starts_with(path)) {
                continue;
            }
        }
        let mounted = folder.zip(layers.as_ref()).filter(|(folder, layers)| {
            mount_overlay(cache, folder, layers)
                .inspect_err(|error| log::debug!("no overlay for {}: {error}", cache.name))
                .is_ok()
        });
        match mounted {
            Some((folder, _)) => paths.push(folder),
            None => others.push(cache),
        }
    }
    let private = caches.private_root().filter(|_| !others.is_empty());
    if let Some(private) = private.and_then(|private| private.canonicalize().ok()) {
        bind(&private, &private)?;
        paths.push(private);
    }
    Ok((paths, caches.variables(&others), layers))
}

/// Mounts the private folder of a cache over the user's own, which becomes read-only.
fn mount_overlay(cache: &PackageCache, folder: &Path, layers: &OverlayFolders) -> io::Result<()> {
    let (upper, work) = layers.for_cache(cache)?;
    let mut options = b"userxattr".to_vec();
    for (name, path) in [("lowerdir", folder), ("upperdir", &upper), ("workdir", &work)] {
        let path = path.as_os_str().as_bytes();
        if path.iter().any(|byte| b",:\\".contains(byte)) {
            // Escaping these differs between kernel versions.
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        options.extend(format!(",{name}=").into_bytes());
        options.extend(path);
    }
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("overlay", folder, "overlay", flags, options.as_c_str())
        .map_err(|error| describe_error(error, "mount over", folder))
}

/// Mounts the private folder for temporary files at `/tmp`. Entries of the original `/tmp` that contain the workspace
/// or other needed paths are mounted into it.
fn mount_temp(
    policy: &SandboxPolicy,
    own: &FolderHandle,
    writable: &[PathBuf],
    caches: &[PathBuf],
) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    let usual = Path::new("/tmp");
    let searched = std::env::var_os("PATH").unwrap_or_default();
    let searched: Vec<PathBuf> = std::env::split_paths(&searched).collect();
    let home: Vec<PathBuf> = std::env::var_os("HOME").into_iter().map(PathBuf::from).collect();
    let guarded = policy.protected.iter().chain(&policy.hidden).chain(&policy.readable);
    let guarded = guarded.chain(&policy.visible);
    let needed = writable.iter().chain(caches).chain([&policy.workspace]).chain(guarded);
    let needed = needed.chain(&searched).chain(&home).cloned();
    let mut entries = BTreeSet::new();
    for path in needed.chain(std::env::current_exe()) {
        let Ok(path) = path.canonicalize() else { continue };
        let Ok(below) = path.strip_prefix(usual) else { continue };
        match below.components().next() {
            Some(first) => entries.insert(usual.join(first)),
            // `/tmp` itself is needed.
            None => return Ok((own.path.clone(), Vec::new())),
        };
    }
    let entries: Vec<FolderHandle> =
        entries.iter().filter_map(|path| FolderHandle::open(path)).collect();
    own.bind_at(usual)?;
    entries.iter().try_for_each(FolderHandle::bind)?;
    Ok((usual.to_owned(), entries.into_iter().map(|entry| entry.path).collect()))
}

/// Folders with the sockets of daemons.
pub(in crate::exec) const RUNTIME_FOLDERS: [&str; 2] = ["/run", "/var/run"];

/// Entries that programs need: name resolution, and programs on systems that keep them in these folders.
const VISIBLE_RUNTIME_ENTRIES: &str = "systemd/resolve/resolv.conf systemd/resolve/stub-resolv.conf \
    resolvconf/resolv.conf NetworkManager/resolv.conf connman/resolv.conf current-system booted-system opengl-driver";

/// Covers the folders of daemons' sockets, and so also sockets that are created later.
fn hide_runtime(policy: &SandboxPolicy, writable: &[PathBuf]) -> io::Result<()> {
    for folder in RUNTIME_FOLDERS.map(Path::new) {
        let is_folder = folder.symlink_metadata().is_ok_and(|found| found.is_dir());
        // A needed path is needed with its sockets.
        let is_needed = writable.iter().any(|path| path.starts_with(folder))
            || policy.temp.starts_with(folder)
            || policy.workspace.starts_with(folder);
        if !is_folder || is_needed {
            continue;
        }
        let readable = policy.readable.iter().filter_map(|path| path.canonicalize().ok());
        let readable = readable.filter(|path| path.starts_with(folder));
        let kept = VISIBLE_RUNTIME_ENTRIES.split(' ').map(|path| folder.join(path)).chain(readable);
        let kept: Vec<_> = kept
            .filter_map(|path| {
                let found = path.symlink_metadata().ok()?;
                let link = found.is_symlink().then(|| fs::read_link(&path)).transpose().ok()?;
                Some((FolderHandle::open(&path)?, link))
            })
            .collect();
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", folder, "tmpfs", flags, c"size=64k,mode=755")
            .map_err(|error| describe_error(error, "cover", folder))?;
        for (handle, link) in kept {
            let Some(to) = link else {
                handle.bind()?;
                continue;
            };
            if let Some(parent) = handle.path.parent() {
                fs::create_dir_all(parent)?;
            }
            symlink(to, &handle.path)?;
        }
    }
    Ok(())
}

/// Covers all devices except harmless ones, for systems without access rules.
fn hide_devices() -> io::Result<()> {
    let folder = Path::new("/dev");
    let kept = landlock::DEVICES.iter().filter_map(|path| FolderHandle::open(Path::new(path)));
    let kept: Vec<FolderHandle> = kept.collect();
    let had_terminals = folder.join("pts").is_dir();
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("tmpfs", folder, "tmpfs", flags, c"size=64k,mode=755")
        .map_err(|error| describe_error(error, "cover", folder))?;
    kept.iter().try_for_each(FolderHandle::bind)?;
    for (name, to) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        symlink(format!("/proc/self/fd{to}"), folder.join(name))?;
    }
    fs::create_dir(SHARED_MEMORY)?;
    if had_terminals {
        fs::create_dir(folder.join("pts"))?;
        fs::File::create(folder.join("ptmx"))?;
    }
    Ok(())
}

/// Gives commands private terminals: on the user's terminals, they could read the user's input.
fn mount_terminals() -> io::Result<()> {
    let (folder, multiplexer) = (Path::new("/dev/pts"), Path::new("/dev/ptmx"));
    if !folder.is_dir() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", folder, "devpts", flags, c"newinstance,ptmxmode=0666,mode=600")
        .map_err(|error| describe_error(error, "mount", folder))?;
    if multiplexer.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
        mount_bind(folder.join("ptmx"), multiplexer)
            .map_err(|error| describe_error(error, "bind", multiplexer))?;
    }
    Ok(())
}

/// Covers sockets outside the command's own folders.
fn hide_sockets(sockets: &[PathBuf], is_own: impl Fn(&Path) -> bool) {
    // The socket may be gone. Other files are not covered: a name in the list can look like the path of any file.
    let is_socket = |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.file_type().is_socket());
    for path in sockets.iter().filter(|path| !is_own(path) && is_socket(path)) {
        let _ = mount_bind("/dev/null", path);
    }
}

/// Returns sockets that were mounted from elsewhere, for example into a container, and so are not listed by this
/// network namespace: the mount points themselves, and entries at the top of a mount.
fn mounted_sockets() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for Mount { path, .. } in list_mounts()? {
        let is_of_kernel = ["/proc", "/sys", "/dev"].iter().any(|kernel| path.starts_with(kernel));
        if is_of_kernel || RUNTIME_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.file_type().is_socket() {
            found.push(path);
        } else if about.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let is_socket =
                |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
            found.extend(entries.filter(is_socket).map(|entry| entry.path()));
        }
    }
    Ok(found)
}

/// Returns the writable folders above protected and hidden paths and above the workspace, outer folders first. A
/// command could rename and replace such a folder unless it is a mount point.
fn writable_ancestors(policy: &SandboxPolicy, writable: &WritablePaths) -> BTreeSet<PathBuf> {
    let lent = policy.copied.iter().map(|lent| &lent.file);
    let guarded = policy.protected.iter().chain(&policy.hidden).chain(&policy.links).chain(lent);
    let guarded = guarded.chain([&policy.workspace]).chain(&policy.writable);
    let folders = guarded.filter_map(|path| path.parent()?.canonicalize().ok());
    let mut ways = BTreeSet::new();
    for folder in folders {
        let is_inside =
            |way: &&Path| writable.contains(way) && writable.roots.iter().all(|root| way != root);
        ways.extend(folder.ancestors().filter(is_inside).map(Path::to_owned));
    }
    ways
}

/// Mounts a symbolic link, possibly over a file. From then on, it can't be renamed, removed or replaced.
fn mount_link(link: &Path, at: &Path) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(CWD, link, flags)?;
    Ok(move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Mounts a link to a copy over a file. A program that replaces the file by renaming resolves the link first, as git
/// does, and so writes the copy.
fn mount_copy(lent: &CopiedFile, copies: &Path) -> io::Result<()> {
    let folder = copies.join(&lent.copy);
    fs::create_dir_all(&folder)?;
    let (copy, link) = (folder.join("config"), folder.join("link"));
    symlink(&copy, &link)?;
    let mounted = mount_link(&link, &lent.file);
    fs::remove_file(&link)?;
    mounted.or_else(|_| bind_read_only(lent.file.clone()))
}

fn bind(path: &Path, at: &Path) -> io::Result<()> {
    mount_bind_recursive(path, at).map_err(|error| describe_error(error, "bind", at))
}

fn describe_error(error: Errno, what: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("could not {what} {}: {error}", path.display()))
}

/// The folder of shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Mounts private shared memory. Returns whether the system has any.
fn mount_shared_memory() -> io::Result<bool> {
    let path = Path::new(SHARED_MEMORY);
    if !path.is_dir() {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", path, "tmpfs", flags, c"mode=1777")
        .map_err(|e| describe_error(e, "mount", path))?;
    Ok(true)
}

/// Hides the hidden paths, and shows the visible folders in them, read-only.
fn hide_paths(policy: &SandboxPolicy) -> io::Result<()> {
    let hidden: Vec<PathBuf> = real_paths(&policy.hidden).collect();
    let is_inside = |path: &Path, folder: &Path| path != folder && path.starts_with(folder);
    let visible = policy.visible.iter().filter_map(|path| FolderHandle::open_without_links(path));
    let visible: Vec<FolderHandle> = visible
        .filter(|folder| hidden.iter().any(|hidden| is_inside(&folder.path, hidden)))
        .filter(|folder| !hidden.contains(&folder.path))
        .collect();
    let (inner, outer): (Vec<_>, Vec<_>) =
        hidden.iter().partition(|path| visible.iter().any(|folder| path.starts_with(&folder.path)));
    for path in outer {
        let shown: Vec<&FolderHandle> =
            visible.iter().filter(|folder| is_inside(&folder.path, path)).collect();
        if shown.is_empty() {
            // A folder around it may be hidden already.
            if path.symlink_metadata().is_ok() {
                hide(path)?;
            }
            continue;
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", path, "tmpfs", flags, c"size=64k,mode=755")
            .map_err(|error| describe_error(error, "hide", path))?;
        shown.iter().try_for_each(|folder| folder.bind())?;
        Mount { path: path.clone(), flags }.make_read_only()?;
    }
    if visible.is_empty() {
        return Ok(());
    }
    for mounted in list_mounts()? {
        if visible.iter().any(|folder| folder.path == mounted.path) {
            mounted.make_read_only()?;
        }
    }
    inner.into_iter().filter(|path| path.symlink_metadata().is_ok()).try_for_each(|path| hide(path))
}

/// Covers a folder with an empty one, and a file with `/dev/null`.
fn hide(path: &Path) -> io::Result<()> {
    let hidden = if path.is_dir() {
        let flags =
            MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", path, "tmpfs", flags, c"size=4k,mode=555")
    } else {
        mount_bind("/dev/null", path)
    };
    hidden.map_err(|error| describe_error(error, "hide", path))
}

/// Shows the parts of hidden files that are not secret, from a folder that commands cannot write.
fn show_redacted(files: &[RedactedFile], copies: &Path) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let folder = copies.join("redacted");
    fs::create_dir_all(&folder)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", &folder, "tmpfs", flags, c"size=1m,mode=755")?;
    let shown = files.iter().enumerate().try_for_each(|(number, RedactedFile { file, text })| {
        let Ok(path) = file.canonicalize() else { return Ok(()) };
        let copy = folder.join(number.to_string());
        fs::write(&copy, text)?;
        mount_bind(&copy, &path)?;
        Mount { path, flags }.make_read_only()
    });
    unmount(&folder, UnmountFlags::DETACH)?;
    fs::remove_dir(&folder)?;
    shown
}

/// Shows only the processes of this namespace. If the system denies that, the others are visible, but out of reach.
fn mount_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    match mount("proc", "/proc", "proc", flags, None) {
        Ok(()) | Err(Errno::PERM | Errno::ACCESS | Errno::BUSY) => Ok(()),
        Err(error) => Err(describe_error(error, "mount", Path::new("/proc"))),
    }
}

/// A mount.
struct Mount {
    path: PathBuf,
    flags: MountFlags,
}

impl Mount {
    fn make_read_only(&self) -> io::Result<()> {
        if self.flags.contains(MountFlags::RDONLY) {
            return Ok(());
        }
        let flags = MountFlags::BIND | MountFlags::RDONLY | self.flags;
        match mount_remount(&self.path, flags, c"") {
            Ok(()) => Ok(()),
            // Paths below another mount, and paths that no longer exist, are unreachable anyway.
            Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            // A folder of another user that neither this process nor the command can enter.
            Err(Errno::ACCESS) => Ok(()),
            Err(error) => Err(describe_error(error, "make read-only", &self.path)),
        }
    }
}

/// Mounts a path read-only over itself.
fn bind_read_only(path: PathBuf) -> io::Result<()> {
    bind(&path, &path)?;
    // The last mount at a path is the visible one.
    let last = list_mounts()?.into_iter().rfind(|mounted| mounted.path == path);
    last.unwrap_or(Mount { path, flags: MountFlags::empty() }).make_read_only()
}

fn list_mounts() -> io::Result<Vec<Mount>> {
    let list = fs::read("/proc/self/mountinfo")?;
    Ok(list.split(|byte| *byte == b'\n').filter_map(parse_mount).collect())
}

/// Parses a line with the fields number, parent, device, root, path, options, and more.
fn parse_mount(line: &[u8]) -> Option<Mount> {
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
        // This mode is shown by the absence of the other modes.
        flags |= MountFlags::STRICTATIME;
    }
    Some(Mount { path, flags })
}

/// Decodes octal escapes of spaces, tabs, line ends and backslashes.
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

/// Returns the sockets with a path that this network namespace lists.
///
/// # Errors
///
/// Fails if the list can't be read.
pub(in crate::exec) fn named_sockets() -> io::Result<Vec<PathBuf>> {
    Ok(parse_sockets(&fs::read("/proc/net/unix")?))
}

/// Parses a list of sockets. Any command can choose the name of an abstract socket. It may have any bytes, including
/// line ends, and must not hide other lines.
fn parse_sockets(list: &[u8]) -> Vec<PathBuf> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for line in list.strip_suffix(b"\n").unwrap_or(list).split(|byte| *byte == b'\n') {
        match (parse_socket(line), names.last_mut()) {
            (Some(name), _) => names.push(name.to_vec()),
            (None, Some(begun)) => {
                begun.push(b'\n');
                begun.extend_from_slice(line);
            }
            (None, None) => {}
        }
    }
    names.retain(|name| name.starts_with(b"/"));
    names.sort();
    names.dedup();
    names.into_iter().map(|name| OsString::from_vec(name).into()).collect()
}

/// Returns the name in a line with the fields address, five numbers, inode number and optional name; `None` if the line
/// does not begin with an address.
fn parse_socket(line: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr(b':', line)?;
    if !line[..end].iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut rest = line;
    for _ in 0..7 {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        rest = &rest[end..];
    }
    Some(rest.strip_prefix(b" ").unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_removed_or_renamed_meanwhile_is_not_created_again() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().canonicalize().unwrap().join("around/folder");
        for is_renamed in [false, true] {
            fs::create_dir_all(&path).unwrap();
            let handle = FolderHandle::open(&path).unwrap();
            if is_renamed {
                fs::rename(path.parent().unwrap(), temp.path().join("other")).unwrap();
            } else {
                fs::remove_dir_all(path.parent().unwrap()).unwrap();
            }
            assert_eq!(handle.bind().unwrap_err().kind(), io::ErrorKind::NotFound);
            assert!(!path.parent().unwrap().exists());
        }
    }

    #[test]
    fn the_name_of_a_socket_hides_no_other_one() {
        let list = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    42 @\xff\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 123456\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 123457 /a/with blank \n\
            0000000000000000: 00000002 00000000 00010000 0001 01 123458 /b\xff\nc\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 123459 /d\n";
        let paths =
            ["/a/with blank ".into(), OsString::from_vec(b"/b\xff\nc".to_vec()), "/d".into()];
        assert_eq!(parse_sockets(list), paths.map(PathBuf::from));
    }

    #[test]
    fn a_mount_is_parsed_with_its_flags() {
        let line = br"36 35 98:0 / /mnt\040a/b rw,noatime,nosuid shared:1 - ext3 /dev/root rw";
        let mounted = parse_mount(line).unwrap();
        assert_eq!(mounted.path, Path::new("/mnt a/b"));
        assert_eq!(mounted.flags, MountFlags::NOATIME | MountFlags::NOSUID);
    }
}
