//! A file that is replaced whole or not at all.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a file was not written.
#[derive(Debug, Error)]
pub enum SaveError {
    /// The folder for it could not be made.
    #[error("could not make the folder {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file itself could not be written.
    #[error("could not write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// The mode of a new file, before the process's mask.
const MODE: u32 = 0o666;

/// Writes a file: its folders are made, and whoever reads it meanwhile sees the old content or the new, never a part.
///
/// A link is followed, an existing file keeps its mode, and what is no file (a device, a pipe) is written to as it is.
///
/// # Errors
///
/// Fails when a folder or the file cannot be written; what was there before is then still there.
pub fn save(path: &Path, content: &[u8]) -> Result<(), SaveError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    fs::create_dir_all(folder)
        .map_err(|source| SaveError::Folder { path: folder.to_owned(), source })?;
    write(path, folder, content)
        .map_err(|source| SaveError::Write { path: path.to_owned(), source })
}

fn write(path: &Path, folder: &Path, content: &[u8]) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(meta) if meta.is_file() => meta.permissions().mode(),
        Ok(_) => return fs::OpenOptions::new().write(true).open(path)?.write_all(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => MODE,
        Err(error) => return Err(error),
    };
    // The link stays, and what it leads to is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(folder);
    let mut file = tempfile::Builder::new()
        .prefix(".architect-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(&target).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folders_are_made_and_the_old_content_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/answer.txt");
        save(&path, b"one").unwrap();
        save(&path, b"two").unwrap();
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
        save(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_is_no_file_is_written_to_and_a_folder_is_refused() {
        save(Path::new("/dev/null"), b"nothing").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let error = save(folder.path(), b"x").unwrap_err();
        assert_eq!(error.to_string(), format!("could not write {}", folder.path().display()));
    }
}
