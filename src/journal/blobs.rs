//! Long texts in separate files, named by their content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;

use super::Durability;
use super::error::{IoContext, JournalError, Result};
use super::folder;
use crate::types::Sha256Digest;
use crate::workspace::{IoError, replace_file};

/// The long texts of one session.
#[derive(Clone, Debug)]
pub(super) struct BlobStore {
    folder: PathBuf,
    durability: Durability,
}

/// A reference to a text in a separate file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlobRef {
    /// The SHA-256 digest of the text, in hexadecimal: the name of its file.
    pub(super) sha256: String,
    /// The length of the text in bytes.
    pub(super) bytes: u64,
}

impl BlobStore {
    /// Creates the store for this folder, which is created with the first blob.
    pub(super) fn new(folder: PathBuf, durability: Durability) -> Self {
        Self { folder, durability }
    }

    /// Stores a text. It is durable when this returns.
    pub(super) fn put(&self, text: &str) -> Result<BlobRef> {
        let blob = BlobRef {
            sha256: Sha256Digest::of(text.as_bytes()).to_string(),
            bytes: text.len() as u64,
        };
        let path = self.folder.join(&blob.sha256);
        let is_there = fs::metadata(&path).is_ok_and(|found| found.len() == blob.bytes);
        if !is_there {
            folder::create_durable(&self.folder, self.durability)?;
            replace_file(&path, text.as_bytes(), self.durability).io_context("write", &path)?;
        }
        Ok(blob)
    }

    /// Returns a stored text.
    ///
    /// # Errors
    ///
    /// Fails if the text is missing or was changed.
    pub(super) fn get(&self, blob: &BlobRef) -> io::Result<String> {
        let is_name = blob.sha256.len() == 64 && blob.sha256.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_name {
            return Err(io::Error::other("the name of a text is not a digest"));
        }
        let lost = |error: io::Error| io::Error::other(format!("text {}: {error}", blob.sha256));
        let path = self.folder.join(&blob.sha256);
        if fs::symlink_metadata(&path).map_err(lost)?.len() != blob.bytes {
            return Err(lost(io::Error::other("its length differs")));
        }
        let text = fs::read(&path).map_err(lost)?;
        if Sha256Digest::of(&text).to_string() != blob.sha256 {
            return Err(lost(io::Error::other("its content differs")));
        }
        String::from_utf8(text).map_err(|_| lost(io::Error::other("it is not UTF-8")))
    }

    /// Copies a blob from another session.
    pub(super) fn copy_from(&self, blob: &BlobRef, other: &Self) -> Result<()> {
        let text = other.get(blob).io_context("read a text from", &other.folder)?;
        self.put(&text).map(|_| ())
    }

    pub(super) fn io_error(&self, what: &'static str, error: impl Into<io::Error>) -> JournalError {
        IoError { operation: what, path: self.folder.clone(), source: error.into() }.into()
    }
}

/// Returns the digest of the data that was hashed so far.
pub(super) fn digest_of(hasher: &Sha256) -> Sha256Digest {
    Sha256Digest(hasher.clone().finalize().into())
}

/// Returns the SHA-256 digest of the rest of a file, in hexadecimal.
pub(super) fn sha256_of_file(file: &mut File) -> io::Result<String> {
    let mut hasher = HashingWriter::new(io::sink());
    io::copy(file, &mut hasher)?;
    Ok(hasher.finish()?.to_string())
}

/// A writer that computes the SHA-256 of the written data.
pub(super) struct HashingWriter<W> {
    out: W,
    hasher: Sha256,
}

impl<W: Write> HashingWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, hasher: Sha256::new() }
    }

    /// Returns the digest.
    pub(super) fn finish(mut self) -> io::Result<Sha256Digest> {
        self.out.flush()?;
        Ok(digest_of(&self.hasher))
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Renames a file. If the new name is taken, the file is removed instead.
///
/// # Errors
///
/// Fails with [`io::ErrorKind::AlreadyExists`] if the name is taken.
pub(super) fn publish_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = TempPath::try_from_path(from)?;
    loop {
        match from.persist_noclobber(to) {
            Err(failed) if failed.error.kind() == io::ErrorKind::Interrupted => from = failed.path,
            renamed => return renamed.map_err(|failed| failed.error),
        }
    }
}

/// Creates a new file that only the user can access.
pub(super) fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blobs() -> (tempfile::TempDir, BlobStore) {
        let temp = tempfile::tempdir().unwrap();
        let blobs = BlobStore::new(temp.path().join("blobs"), Durability::Full);
        (temp, blobs)
    }

    #[test]
    fn the_same_text_is_kept_once() {
        let (_temp, blobs) = blobs();
        let first = blobs.put("some text").unwrap();
        assert_eq!(blobs.put("some text").unwrap(), first);
        assert_eq!(blobs.get(&first).unwrap(), "some text");
        assert_eq!(fs::read_dir(&blobs.folder).unwrap().count(), 1);
    }

    #[test]
    fn a_text_that_was_changed_is_not_given_out() {
        let (_temp, blobs) = blobs();
        let blob = blobs.put("some text").unwrap();
        fs::write(blobs.folder.join(&blob.sha256), "sane text").unwrap();
        assert!(blobs.get(&blob).unwrap_err().to_string().ends_with("its content differs"));
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        let (temp, blobs) = blobs();
        blobs.put("some text").unwrap();
        fs::write(temp.path().join("secret"), "secret text").unwrap();
        for sha256 in ["../secret", "/etc/passwd", ""] {
            assert!(blobs.get(&BlobRef { sha256: sha256.to_owned(), bytes: 4 }).is_err());
        }
    }

    #[test]
    fn a_name_is_given_once() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        for name in ["a", "b"] {
            fs::write(path(name), name).unwrap();
        }
        publish_file(&path("a"), &path("name")).unwrap();
        let error = publish_file(&path("b"), &path("name")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(path("name")).unwrap(), "a");
        assert!(!path("b").exists() && !path("a").exists());
    }
}
