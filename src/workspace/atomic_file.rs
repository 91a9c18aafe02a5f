//! Atomic replacement of files, and creation of folders that survive a power cut.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::{IoContext, IoError};
use super::open_folder::remove_unneeded;
use crate::port::unique_id;
use crate::types::Durability;

/// Replaces a file by one that only the user can access. A reader sees either the old or the new content.
///
/// # Errors
///
/// Fails on an I/O error. The old content is then intact, unless only the sync of the folder failed.
pub fn replace_file(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let temporary = TemporaryFile::create_in(folder_of(path))?;
    temporary.file().write_all(content)?;
    temporary.publish(path, durability)
}

/// A file that is removed unless it is published.
#[derive(Debug)]
pub struct TemporaryFile {
    path: PathBuf,
    file: File,
    is_published: bool,
}

impl TemporaryFile {
    /// Creates a file with these permissions, without those that the process masks for new files.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error, and if the file exists.
    pub fn create(path: PathBuf, mode: u32) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { path, file, is_published: false })
    }

    /// Creates a file with a unique name in a folder. Only the user can access the file.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn create_in(folder: &Path) -> io::Result<Self> {
        Self::create(folder.join(format!(".{}", unique_id())), 0o600)
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns its temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to its final name in the same folder. An existing file is replaced.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn publish(mut self, path: &Path, durability: Durability) -> io::Result<()> {
        if durability == Durability::Full {
            self.file.sync_all()?;
        }
        fs::rename(&self.path, path)?;
        self.is_published = true;
        match durability {
            Durability::Full => File::open(folder_of(path))?.sync_all(),
            Durability::Os => Ok(()),
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.is_published {
            remove_unneeded(self.path.display(), || fs::remove_file(&self.path));
        }
    }
}

/// Creates a folder that only the user can access, with its missing parents.
///
/// # Errors
///
/// Fails on an I/O error.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a folder like [`create_private_folder`]. With [`Durability::Full`], the new folders are durable when this
/// returns.
///
/// # Errors
///
/// Fails on an I/O error.
pub fn create_durable_folder(path: &Path, durability: Durability) -> Result<(), IoError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.is_dir()).collect();
    create_private_folder(path).io_context("create the folder", path)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(|it| sync_folder(it, durability))
}

/// Makes the entries of a folder durable, with [`Durability::Full`].
///
/// # Errors
///
/// Fails on an I/O error.
pub fn sync_folder(path: &Path, durability: Durability) -> Result<(), IoError> {
    match durability {
        Durability::Full => {
            File::open(path).and_then(|folder| folder.sync_all()).io_context("make durable", path)
        }
        Durability::Os => Ok(()),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}
