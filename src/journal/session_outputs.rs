//! The complete outputs of tools, if they were truncated for the model.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Durability;
use super::blobs::{HashingWriter, sha256_of_file};
use super::error::{IoContext, Result};
use super::folder;
use crate::types::{CallId, Sha256Digest};
use crate::workspace::{
    LinePage, LinePosition, TemporaryFile, read_line_page, replace_file, sync_folder,
};

/// The complete outputs of one session, by call.
///
/// They are as durable as the journal, which refers to them.
#[derive(Clone, Debug)]
pub struct SessionOutputs {
    folder: PathBuf,
    durability: Durability,
}

impl SessionOutputs {
    pub(super) fn new(folder: PathBuf, durability: Durability) -> Self {
        Self { folder, durability }
    }

    /// Stores the complete output of a call, and returns its digest.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn store(&self, call: &CallId, text: &str) -> Result<Sha256Digest> {
        folder::create_durable(&self.folder, self.durability)?;
        let digest = Sha256Digest::of(text.as_bytes());
        let path = self.path(call, digest);
        let other = self.find(call).filter(|other| *other != path);
        replace_file(&path, text.as_bytes(), self.durability).io_context("write", &path)?;
        remove_other(other).map(|()| digest)
    }

    /// Stores the output that a function writes, in bounded memory, and returns its digest.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error, and if the function fails.
    pub fn store_written(
        &self,
        call: &CallId,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Sha256Digest> {
        folder::create_durable(&self.folder, self.durability)?;
        let file = TemporaryFile::create_in(&self.folder).io_context("write", &self.folder)?;
        let mut out = HashingWriter::new(BufWriter::new(file.file()));
        let written = write(&mut out).and_then(|()| out.finish());
        let digest = written.io_context("write", &self.folder)?;
        let path = self.path(call, digest);
        let other = self.find(call).filter(|other| *other != path);
        file.publish(&path, self.durability).io_context("write", &path)?;
        remove_other(other).map(|()| digest)
    }

    /// Verifies the stored output of a call against its digest.
    ///
    /// # Errors
    ///
    /// Fails if it is missing, or differs.
    pub fn verify(&self, call: &CallId, digest: Sha256Digest) -> io::Result<()> {
        let path = self.path(call, digest);
        check_digest(&mut File::open(&path)?, &path)
    }

    /// Returns a new temporary file beside the outputs. It is removed when it is closed.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn open_spool(&self) -> Result<File> {
        folder::create_durable(&self.folder, self.durability)?;
        Ok(tempfile::tempfile_in(&self.folder).io_context("write", &self.folder)?)
    }

    /// Returns up to `limit` lines of an output, starting at line `offset`, counted from one; `None` if no output of
    /// this call was stored.
    ///
    /// # Errors
    ///
    /// Fails if the output can't be read, or was changed.
    pub fn page(&self, call: &CallId, offset: u64, limit: u64) -> Result<Option<LinePage>> {
        self.page_from(call, LinePosition::line(offset.max(1)), limit)
    }

    /// Returns up to `limit` lines of an output, starting at a position within a line.
    ///
    /// # Errors
    ///
    /// Fails if the output can't be read, or was changed.
    pub fn page_from(
        &self,
        call: &CallId,
        first: LinePosition,
        limit: u64,
    ) -> Result<Option<LinePage>> {
        let Some(path) = self.find(call) else { return Ok(None) };
        let mut file = File::open(&path).io_context("open", &path)?;
        check_digest(&mut file, &path).io_context("read", &path)?;
        let mut input = BufReader::with_capacity(64 << 10, file);
        Ok(Some(read_line_page(&mut input, first, limit).io_context("read", &path)?))
    }

    /// Returns the file for a call's output. The id of a call is text from the model, so it is hashed for the name. The
    /// name also contains the digest of the content, so that a partial file after a power cut is detected.
    fn path(&self, call: &CallId, content: Sha256Digest) -> PathBuf {
        let call = Sha256Digest::of(call.as_str().as_bytes());
        self.folder.join(format!("{call}.{content}"))
    }

    /// Returns the stored file of a call's output. Older releases named it by the call alone.
    fn find(&self, call: &CallId) -> Option<PathBuf> {
        let call = Sha256Digest::of(call.as_str().as_bytes());
        let mut names = folder::read_dir(&self.folder).ok()?.flatten().map(|entry| entry.path());
        names.find(|path| path.file_stem().is_some_and(|name| *name == *call.to_string()))
    }

    /// Copies all outputs of another session.
    pub(super) fn copy_from(&self, other: &Self) -> Result<()> {
        let Ok(entries) = folder::read_dir(&other.folder) else { return Ok(()) };
        folder::create_durable(&self.folder, self.durability)?;
        for entry in entries {
            let from = entry.io_context("list", &other.folder)?.path();
            let Some(name) = from.file_name() else { continue };
            let to = self.folder.join(name);
            // Outputs are never changed in place, so both sessions can share the file.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).io_context("copy", &from)?;
                if self.durability == Durability::Full {
                    File::open(&to)
                        .and_then(|file| file.sync_all())
                        .io_context("make durable", &to)?;
                }
            }
        }
        Ok(sync_folder(&self.folder, self.durability)?)
    }
}

/// Removes the earlier output of a call.
fn remove_other(other: Option<PathBuf>) -> Result<()> {
    if let Some(other) = other {
        fs::remove_file(&other).io_context("remove", &other)?;
    }
    Ok(())
}

/// Fails unless the content of a file has the digest in its name.
fn check_digest(file: &mut File, path: &Path) -> io::Result<()> {
    let Some(content) = path.extension() else { return Ok(()) };
    if *sha256_of_file(file)? != *content {
        return Err(io::Error::other("its content differs from what was stored"));
    }
    file.seek(SeekFrom::Start(0)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::MAX_LINE_PAGE;

    fn outputs() -> (tempfile::TempDir, SessionOutputs) {
        let temp = tempfile::tempdir().unwrap();
        let outputs = SessionOutputs::new(temp.path().join("outputs"), Durability::Full);
        (temp, outputs)
    }

    #[test]
    fn an_output_that_is_torn_is_not_given_out() {
        let (_temp, outputs) = outputs();
        let call = CallId::from("c");
        outputs.store(&call, "another\n").unwrap();
        outputs.store(&call, "1\n2\n3\n").unwrap();
        assert_eq!(outputs.page(&call, 1, 1).unwrap().unwrap().lines, 3);
        let path = outputs.find(&call).unwrap();
        fs::write(&path, "1\n2\n").unwrap();
        assert!(
            outputs
                .page(&call, 1, 1)
                .unwrap_err()
                .to_string()
                .contains("differs from what was stored")
        );
        // The file of an older release is returned without the check.
        fs::rename(&path, path.with_extension("")).unwrap();
        assert_eq!(outputs.page(&call, 1, 1).unwrap().unwrap().lines, 2);
    }

    #[test]
    fn a_long_output_is_read_page_by_page() {
        let (_temp, outputs) = outputs();
        let call = CallId::from("../../call/1");
        assert_eq!(outputs.page(&call, 1, 10).unwrap(), None);
        let text: Vec<String> = (1..=100).map(|line| format!("line {line}\n")).collect();
        outputs.store(&call, &text.concat()).unwrap();
        let page = |offset, limit| outputs.page(&call, offset, limit).unwrap().unwrap();
        assert_eq!(
            page(99, 10),
            LinePage { text: "line 99\nline 100\n".to_owned(), byte: 0, lines: 100, cut: 0 }
        );
        assert_eq!(page(3, 2).text, "line 3\nline 4\n");
        assert_eq!(page(0, 1).text, "line 1\n");
        assert_eq!(page(1_000, 10), LinePage { text: String::new(), byte: 0, lines: 100, cut: 0 });
    }

    #[test]
    fn one_endless_line_does_not_fill_the_memory() {
        let (_temp, outputs) = outputs();
        let call = CallId::from("c");
        outputs.store(&call, &format!("{}\nend", "x".repeat(1 << 20))).unwrap();
        let page = outputs.page(&call, 1, 10).unwrap().unwrap();
        assert_eq!(
            (page.text.len(), page.lines, page.cut),
            (MAX_LINE_PAGE, 2, (1 << 20) - (64 << 10) + 1)
        );
        assert_eq!(outputs.page(&call, 2, 10).unwrap().unwrap().text, "end");
        let last = LinePosition { line: 1, byte: (1 << 20) - 3 };
        assert_eq!(outputs.page_from(&call, last, 1).unwrap().unwrap().text, "xxx\n");
        assert_eq!(outputs.page_from(&call, last, 2).unwrap().unwrap().text, "xxx\nend");
    }

    #[test]
    fn an_output_that_is_written_in_pieces_is_stored_as_one() {
        let (_temp, outputs) = outputs();
        let call = CallId::from("c");
        outputs.store(&call, "earlier").unwrap();
        let failed = outputs.store_written(&call, |out| {
            out.write_all(b"lost")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(failed.is_err());
        assert_eq!(outputs.page(&call, 1, 9).unwrap().unwrap().text, "earlier");
        outputs
            .store_written(&call, |out| (1..=3).try_for_each(|line| writeln!(out, "{line}")))
            .unwrap();
        assert_eq!(outputs.page(&call, 3, 9).unwrap().unwrap().text, "3\n");
        assert_eq!(fs::read_dir(&outputs.folder).unwrap().count(), 1);
    }
}
