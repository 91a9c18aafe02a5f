//! I/O errors that say which operation on which path failed.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A failed operation on a file or folder.
#[derive(Debug, Error)]
#[error("could not {operation} {}: {source}", path.display())]
pub struct IoError {
    /// The operation.
    pub operation: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl IoError {
    /// Returns whether the file or folder does not exist.
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Adds the operation and the path to an I/O error.
pub trait IoContext<T> {
    /// Adds the operation and the path.
    ///
    /// # Errors
    ///
    /// Fails if the operation has failed.
    fn io_context(self, operation: &'static str, path: &Path) -> Result<T, IoError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn io_context(self, operation: &'static str, path: &Path) -> Result<T, IoError> {
        self.map_err(|error| IoError { operation, path: path.to_owned(), source: error.into() })
    }
}
