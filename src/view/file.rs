//! Writing files atomically.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::port::unique_id;
use crate::types::Durability;
use crate::workspace::{IoContext, IoError, TemporaryFile, open_without_links, resolve_inside};

/// The mode of a new file, before the umask.
const DEFAULT_MODE: u32 = 0o666;

/// Writes a file atomically: a reader sees either the old or the new content. Missing folders are created.
///
/// Links are followed, except inside the workspace, where others may have created them. An existing file keeps its
/// mode. Devices and pipes are written to directly, and so is the file behind standard output or standard error
/// (`/dev/stdout`), which other processes write to.
///
/// # Errors
///
/// Fails if a link inside the workspace is on the path, and if a folder or the file cannot be written. The old content
/// is unchanged then. A named pipe without a reader is an error, too.
pub fn save(workspace: &Path, path: &Path, content: &[u8]) -> Result<(), IoError> {
    // Standard output and error are written to directly, even if they are files.
    if let Some(mut stream) = standard_stream(path) {
        return stream.write_all(content).io_context("write", path);
    }
    let inside = resolve_inside(workspace, path).io_context("write", path)?;
    let path = inside.as_deref().unwrap_or(path);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    fs::create_dir_all(folder).io_context("create the folder", folder)?;
    replace(path, folder, content, inside.is_some()).io_context("write", path)
}

/// Replaces a file, or writes to a device. A folder inside the workspace is kept open meanwhile.
fn replace(path: &Path, folder: &Path, content: &[u8], is_inside: bool) -> io::Result<()> {
    let meta = if is_inside { fs::symlink_metadata(path) } else { fs::metadata(path) };
    let mode = match meta {
        Ok(meta) if meta.is_file() => meta.permissions().mode(),
        Ok(meta) if meta.is_symlink() => return Err(io::ErrorKind::PermissionDenied.into()),
        Ok(meta) => return open_special(path, &meta)?.write_all(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => DEFAULT_MODE,
        Err(error) => return Err(error),
    };
    if is_inside {
        let held = open_without_links(folder, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let by_handle = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let folder = if by_handle.is_dir() { &by_handle } else { folder };
        let target = folder.join(path.file_name().unwrap_or_default());
        return write_and_rename(folder, &target, mode, content);
    }
    // A link is kept, and its target is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(folder);
    write_and_rename(folder, &target, mode, content)
}

/// Appends to a file, on a new line. A missing file is created.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn append(path: &Path, content: &[u8]) -> Result<(), IoError> {
    let write = || {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut last = [b'\n'];
        if file.metadata()?.is_file() && file.seek(SeekFrom::End(-1)).is_ok() {
            file.read_exact(&mut last)?;
        }
        let between: &[u8] = if last == *b"\n" { b"" } else { b"\n" };
        file.write_all(&[between, content].concat())
    };
    write().io_context("write", path)
}

/// Writes a new file, and renames it to the target.
fn write_and_rename(folder: &Path, target: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let new = TemporaryFile::create(folder.join(format!(".architect-{}", unique_id())), mode)?;
    new.file().write_all(content)?;
    new.file().sync_all()?;
    // An unreadable or remote folder can't always be synced.
    new.publish(target, Durability::Os)
}

/// Returns whether a path is the file behind standard output or standard error, to which [`save`] writes directly.
pub fn is_standard_stream(path: &Path) -> bool {
    standard_stream(path).is_some()
}

/// Returns standard output or standard error, if `path` is the file behind it.
fn standard_stream(path: &Path) -> Option<File> {
    let meta = fs::metadata(path).ok()?;
    let (out, err) = (io::stdout(), io::stderr());
    [out.as_fd(), err.as_fd()].into_iter().find_map(|stream| {
        let stream = File::from(stream.try_clone_to_owned().ok()?);
        let behind = stream.metadata().ok()?;
        ((behind.dev(), behind.ino()) == (meta.dev(), meta.ino())).then_some(stream)
    })
}

/// Opens a device or a pipe for writing.
fn open_special(path: &Path, meta: &Metadata) -> io::Result<File> {
    if !meta.file_type().is_fifo() {
        return OpenOptions::new().write(true).open(path);
    }
    // Opening a pipe without a reader would block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let pipe = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    rustix::fs::fcntl_setfl(&pipe, OFlags::empty())?;
    Ok(pipe)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folders_are_made_and_the_old_content_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/answer.txt");
        save(Path::new("/nowhere"), &path, b"one").unwrap();
        save(Path::new("/nowhere"), &path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_followed_and_a_mode_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        save(Path::new("/nowhere"), &link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_link_in_the_workspace_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("w");
        fs::create_dir(&workspace).unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "old").unwrap();
        symlink(&file, workspace.join("link")).unwrap();
        symlink(folder.path(), workspace.join("d")).unwrap();
        for name in ["link", "d/file", "d/new"] {
            assert!(save(&workspace, &workspace.join(name), b"new").is_err(), "{name}");
        }
        save(&workspace, &workspace.join("a/plain"), b"new").unwrap();
        assert_eq!(fs::read(workspace.join("a/plain")).unwrap(), b"new");
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn a_pipe_without_a_reader_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(matches!(
            save(Path::new("/nowhere"), &pipe, b"x"),
            Err(IoError { operation: "write", .. })
        ));
        let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        save(Path::new("/nowhere"), &pipe, b"x").unwrap();
        assert_eq!(Read::bytes(reader).next().unwrap().unwrap(), b'x');
    }

    #[test]
    fn a_device_is_written_to_and_a_folder_is_rejected() {
        save(Path::new("/nowhere"), Path::new("/dev/null"), b"nothing").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let error = save(Path::new("/nowhere"), folder.path(), b"x").unwrap_err();
        let expected = format!("could not write {}: ", folder.path().display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}
