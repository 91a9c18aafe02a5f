//! The handle of the workspace.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, MetadataExt, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::access_guard::{self, AccessGuard, AccessMode};
use super::editor_buffers::{EditorBuffers, unsaved_content};
use super::error::FileError;
use super::file_kind::FileKind;
use super::open_folder::{create_below, open_below, open_canonical};
use super::path::{PathError, RelPath};

/// The workspace: an open folder. Everything below it is accessed through this handle. Clones share it.
#[derive(Clone, Debug)]
pub struct WorkspaceRoot {
    dir: Arc<Dir>,
    path: PathBuf,
    given_path: PathBuf,
    links: FolderLinks,
    guard: Option<Arc<dyn AccessGuard>>,
    buffers: Option<Arc<dyn EditorBuffers>>,
}

/// The number of attempts to resolve a path whose file is replaced meanwhile.
const RESOLVE_ATTEMPTS: u32 = 10;

/// The treatment of a link in place of a folder in which a file is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderLinks {
    /// The link is followed if it leads to a folder inside.
    FollowInside,
    /// The change fails.
    Refuse,
}

/// A regular file opened for reading.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: File,
    /// Its size in bytes.
    pub size: u64,
}

impl WorkspaceRoot {
    /// Opens a folder as a workspace.
    ///
    /// # Errors
    ///
    /// Fails if it is not a readable folder.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let given = std::path::absolute(path)?;
        let path = given.canonicalize()?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
        Ok(Self::new(dir, path, given, FolderLinks::FollowInside))
    }

    /// Opens a folder as a workspace in which no file is changed through a link.
    ///
    /// # Errors
    ///
    /// Fails if it is not a readable folder, or a folder of the absolute path is a link.
    pub(super) fn open_without_links(path: &Path) -> io::Result<Self> {
        let (dir, path) = (open_canonical(path)?, path.to_owned());
        Ok(Self::new(dir, path.clone(), path, FolderLinks::Refuse))
    }

    fn new(dir: Dir, path: PathBuf, given_path: PathBuf, links: FolderLinks) -> Self {
        Self { dir: Arc::new(dir), path, given_path, links, guard: None, buffers: None }
    }

    /// Opens a folder in order to change a file in it.
    pub(super) fn open_folder(&self, path: &RelPath) -> io::Result<Dir> {
        match self.links {
            FolderLinks::FollowInside => self.dir.open_dir(path.as_path()),
            FolderLinks::Refuse => open_below(&self.dir, path.as_path()),
        }
    }

    /// Opens a folder in order to create a file in it, and creates missing folders.
    pub(super) fn create_folder(&self, path: &RelPath) -> io::Result<Dir> {
        match self.links {
            FolderLinks::FollowInside => {
                self.dir.create_dir_all(path.as_path())?;
                self.dir.open_dir(path.as_path())
            }
            FolderLinks::Refuse => create_below(&self.dir, path.as_path()),
        }
    }

    /// Returns the same workspace with access limited by a guard.
    pub fn with_guard(&self, guard: Arc<dyn AccessGuard>) -> Self {
        Self { guard: Some(guard), ..self.clone() }
    }

    /// Returns the same workspace with the unsaved changes of an editor. Only [`read`](Self::read) considers them.
    pub fn with_buffers(&self, buffers: Arc<dyn EditorBuffers>) -> Self {
        Self { buffers: Some(buffers), ..self.clone() }
    }

    /// Returns whether an editor may have unsaved changes.
    pub fn has_buffers(&self) -> bool {
        self.buffers.is_some()
    }

    /// Returns the content of a file in the editor, if it differs from the content on disk.
    pub fn unsaved_content(&self, path: &RelPath, disk: &[u8]) -> Option<Vec<u8>> {
        let buffers = self.buffers.as_ref()?;
        unsaved_content(disk, &buffers.read(&self.given_path.join(path.as_path()))?)
    }

    /// Informs the editor of a file that was written.
    pub fn notify_written(&self, path: &RelPath, content: &[u8]) {
        if let (Some(buffers), Ok(text)) = (&self.buffers, std::str::from_utf8(content)) {
            buffers.on_written(&self.given_path.join(path.as_path()), text);
        }
    }

    /// Fails if an entry of an open folder must not be written.
    pub(super) fn check_write(
        &self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
    ) -> Result<(), FileError> {
        let Some(guard) = self.guard.as_deref() else { return Ok(()) };
        let real =
            access_guard::real_path(self.dir.as_fd(), folder).map(|folder| folder.join(name));
        let is_repository = |real: &RelPath| {
            guard.protects_repositories() && access_guard::is_inside_repository(&self.dir, real)
        };
        if real.as_ref().is_some_and(is_repository) {
            let why = "the folder is a repository of git, or would be one, and what is there is run or followed outside \
                       the sandbox; commands of git can change it";
            return Err(FileError::Denied(path.clone(), why.to_owned()));
        }
        access_guard::check_access(guard, real, path, AccessMode::Write)
    }

    fn check_read(&self, file: BorrowedFd<'_>, path: &RelPath) -> Result<(), FileError> {
        let guard = self.guard.as_deref().filter(|guard| guard.restricts_reading());
        let Some(guard) = guard else { return Ok(()) };
        let real = access_guard::real_path(self.dir.as_fd(), file);
        access_guard::check_access(guard, real, path, AccessMode::Read)
    }

    /// Returns the absolute path of the workspace, as it was given.
    pub fn given_path(&self) -> &Path {
        &self.given_path
    }

    /// Returns the absolute path of the workspace, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Resolves a path that a model has given. An absolute path is accepted if it is inside. Escapes of displayed names
    /// are decoded.
    ///
    /// # Errors
    ///
    /// Fails if the path leads outside.
    pub fn resolve(&self, text: &str) -> Result<RelPath, PathError> {
        let path = Path::new(text);
        let inside = [&self.path, &self.given_path]
            .into_iter()
            .find_map(|root| path.is_absolute().then(|| path.strip_prefix(root).ok()).flatten());
        let path = RelPath::new(inside.unwrap_or(path))?;
        match path.unescaped() {
            Some(unescaped) if !self.exists(&path) && self.exists(&unescaped) => Ok(unescaped),
            _ => Ok(path),
        }
    }

    /// Returns whether the path exists, even if it is a dangling link.
    pub fn exists(&self, path: &RelPath) -> bool {
        self.dir.symlink_metadata(path.as_path()).is_ok()
    }

    /// Returns the kind of a file, following symbolic links inside the workspace.
    ///
    /// # Errors
    ///
    /// Fails if it does not exist, or its path leads outside.
    pub fn kind(&self, path: &RelPath) -> Result<FileKind, FileError> {
        kind_of(path, self.dir.metadata(path.as_path()))
    }

    /// Returns the kind of a path without following a symbolic link.
    ///
    /// # Errors
    ///
    /// Fails if it does not exist, or its path leads outside.
    pub fn link_kind(&self, path: &RelPath) -> Result<FileKind, FileError> {
        kind_of(path, self.dir.symlink_metadata(path.as_path()))
    }

    /// Returns values that change when a file is written or replaced: inode, size, and time of the last change in
    /// nanoseconds. `None` if it does not exist.
    pub fn change_stamp(&self, path: &RelPath) -> Option<(u64, u64, i64)> {
        let found = self.dir.metadata(path.as_path()).ok()?;
        let time = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
        Some((found.ino(), found.size(), time))
    }

    /// Opens a regular file for reading. Never blocks: pipes, sockets and devices are rejected.
    ///
    /// # Errors
    ///
    /// Fails if it is not a regular file, or cannot be read.
    pub fn open_file(&self, path: &RelPath) -> Result<OpenFile, FileError> {
        let mut options = OpenOptions::new();
        // Without NONBLOCK, opening a pipe would wait for its other end.
        options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
        let failed = |error: io::Error| {
            // Opening a socket, or a device without a driver, fails with unspecific errors.
            match self.kind(path) {
                Ok(kind @ (FileKind::Pipe | FileKind::Socket | FileKind::Device)) => {
                    FileError::Special(path.clone(), kind)
                }
                Ok(_) | Err(_) => self.link_error("read", path, error),
            }
        };
        let file = self.dir.open_with(path.as_path(), &options).map_err(failed)?;
        self.check_read(file.as_fd(), path)?;
        let meta = file.metadata().map_err(|error| FileError::from_io("read", path, error))?;
        match FileKind::from_file_type(meta.file_type()) {
            FileKind::File => Ok(OpenFile { file: file.into_std(), size: meta.len() }),
            FileKind::Directory => Err(FileError::IsDirectory(path.clone())),
            kind @ (FileKind::Link | FileKind::Pipe | FileKind::Socket | FileKind::Device) => {
                Err(FileError::Special(path.clone(), kind))
            }
        }
    }

    /// Returns the error for a path that may be a dangling link.
    fn link_error(&self, action: &'static str, path: &RelPath, error: io::Error) -> FileError {
        match self.link_kind(path) {
            Ok(FileKind::Link) if error.kind() == io::ErrorKind::NotFound => {
                FileError::Dangling(path.clone())
            }
            _ => FileError::from_io(action, path, error),
        }
    }

    /// Reads a whole file of at most `limit` bytes, with its unsaved changes in an editor.
    ///
    /// # Errors
    ///
    /// Fails if it is not a regular file, cannot be read, or is larger.
    pub fn read(&self, path: &RelPath, limit: u64) -> Result<Vec<u8>, FileError> {
        let too_large = |size| FileError::TooLarge { path: path.clone(), size, limit };
        let OpenFile { file, size } = self.open_file(path)?;
        if size > limit {
            return Err(too_large(size));
        }
        let mut content = Vec::new();
        // A file in /proc has size 0, and other files may grow. Neither may fill the memory.
        let read = file.take(limit + 1).read_to_end(&mut content);
        read.map_err(|error| FileError::from_io("read", path, error))?;
        if content.len() as u64 > limit {
            return Err(too_large(content.len() as u64));
        }
        let unsaved = self.unsaved_content(path, &content);
        let unsaved = unsaved.filter(|unsaved| unsaved.len() as u64 <= limit);
        Ok(unsaved.unwrap_or(content))
    }

    /// Resolves all symbolic links in a path, which doesn't have to exist. `None` if the result is the path itself, or
    /// unknown.
    pub fn real_path(&self, path: &RelPath) -> Option<RelPath> {
        let mut existing = path.clone();
        let mut rest = Vec::new();
        let mut real = loop {
            if existing.is_root() {
                break RelPath::root();
            }
            match self.canonicalize(&existing) {
                Ok(real) => break RelPath::new(real).ok()?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    rest.push(existing.name()?.to_owned());
                    existing = existing.parent()?;
                }
                Err(_) => return None,
            }
        };
        for name in rest.iter().rev() {
            real = real.join(name);
        }
        (real != *path).then_some(real)
    }

    /// Resolves all symbolic links in a path. A path whose file is replaced in every attempt counts as missing.
    fn canonicalize(&self, path: &RelPath) -> io::Result<PathBuf> {
        for _ in 0..RESOLVE_ATTEMPTS {
            let real = self.dir.canonicalize(path.as_path())?;
            // The system adds this to the path of an open file that was replaced meanwhile. It may also be a part of
            // the file's name.
            if !real.as_os_str().as_bytes().ends_with(b" (deleted)") {
                return Ok(real);
            }
            let identity = |meta: Metadata| (meta.dev(), meta.ino());
            let named = self.dir.symlink_metadata(&real).map(identity);
            if named.is_ok_and(|named| {
                self.dir.metadata(path.as_path()).map(identity).is_ok_and(|found| found == named)
            }) {
                return Ok(real);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Resolves symbolic links inside the workspace to a file, which may be new.
    ///
    /// # Errors
    ///
    /// Fails if a link leads outside or is dangling.
    pub fn canonical(&self, path: &RelPath) -> Result<RelPath, FileError> {
        match self.dir.symlink_metadata(path.as_path()) {
            Ok(meta) if meta.is_symlink() => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FileError::from_io("look at", path, error));
            }
            // The folders of the file may be links, and the file may be new.
            _ => return Ok(self.real_path(path).unwrap_or_else(|| path.clone())),
        }
        let canonical = self.canonicalize(path);
        Ok(RelPath::new(canonical.map_err(|error| self.link_error("look at", path, error))?)?)
    }
}

fn kind_of(path: &RelPath, found: io::Result<Metadata>) -> Result<FileKind, FileError> {
    let found = found.map_err(|error| FileError::from_io("look at", path, error))?;
    Ok(FileKind::from_file_type(found.file_type()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn workspace() -> (tempfile::TempDir, WorkspaceRoot) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/a"), "text").unwrap();
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        (folder, root)
    }

    fn read(root: &WorkspaceRoot, path: &str) -> Result<Vec<u8>, FileError> {
        root.read(&root.resolve(path)?, 1_000)
    }

    /// Other runs and editors replace files like this program.
    #[test]
    fn a_file_that_is_replaced_meanwhile_keeps_its_name() {
        let (folder, root) = workspace();
        let path = root.resolve("d/a").unwrap();
        let is_over = AtomicBool::new(false);
        let wrong = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    fs::write(folder.path().join("new"), "").unwrap();
                    fs::rename(folder.path().join("new"), folder.path().join("d/a")).unwrap();
                }
            });
            let found = (0..50_000).map(|_| root.canonical(&path));
            let wrong: Vec<_> =
                found.filter(|found| !found.as_ref().is_ok_and(|found| *found == path)).collect();
            is_over.store(true, Relaxed);
            wrong
        });
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn an_absolute_path_inside_is_accepted() {
        let (folder, root) = workspace();
        let absolute = folder.path().join("d/a");
        assert_eq!(read(&root, absolute.to_str().unwrap()).unwrap(), b"text");
        assert_eq!(read(&root, "d/../d/a").unwrap(), b"text");
        assert!(matches!(read(&root, "/etc/hostname"), Err(FileError::Path(_))));
    }

    /// Faults T19, R6: errors name the kind of file, and nothing blocks.
    #[test]
    fn special_files_are_refused_without_blocking() {
        let (folder, root) = workspace();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        symlink("self", folder.path().join("self")).unwrap();
        symlink("nothing", folder.path().join("dangling")).unwrap();
        symlink("/etc/hostname", folder.path().join("outside")).unwrap();
        symlink("/dev/zero", folder.path().join("zero")).unwrap();
        let begun = Instant::now();
        let message = |path| read(&root, path).unwrap_err().to_string();
        assert_eq!(message("pipe"), "'pipe' is a named pipe, not a regular file");
        assert_eq!(message("socket"), "'socket' is a socket, not a regular file");
        assert_eq!(message("d"), "'d' is a directory, not a file");
        assert_eq!(message("d/a/b"), "'d/a/b' is not a directory");
        assert_eq!(message("none"), "'none' does not exist");
        assert_eq!(
            message("dangling"),
            "'dangling' is a symbolic link whose target does not exist"
        );
        assert_eq!(message("self"), "'self' is a symbolic link that leads back to itself");
        for escape in ["outside", "zero"] {
            let expected =
                format!("'{escape}' leads outside the workspace through a symbolic link");
            assert_eq!(message(escape), expected);
        }
        assert!(begun.elapsed().as_secs() < 5);
    }

    #[test]
    fn no_more_is_loaded_than_allowed() {
        let (folder, root) = workspace();
        fs::write(folder.path().join("large"), vec![b'x'; 1_001]).unwrap();
        assert!(matches!(read(&root, "large"), Err(FileError::TooLarge { size: 1_001, .. })));
    }

    /// Fault R8.
    #[test]
    fn a_name_that_is_not_text_is_found_by_its_display() {
        use std::os::unix::ffi::OsStrExt;
        let (folder, root) = workspace();
        let name = OsStr::from_bytes(b"odd\xff\x1b");
        fs::write(folder.path().join(name), "odd").unwrap();
        let (entries, _) = root.list(&RelPath::root(), 10).unwrap();
        let shown: Vec<_> =
            entries.iter().map(|entry| crate::types::escape_name(&entry.name)).collect();
        assert_eq!(shown, ["d", "odd\\xff\\u{1b}"]);
        assert_eq!(read(&root, &shown[1]).unwrap(), b"odd");
    }
}
