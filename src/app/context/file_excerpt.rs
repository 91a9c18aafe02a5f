//! The beginning of a text file, limited in size.

use std::io::Read;

use crate::workspace::{FileError, OpenFile, RelPath, TextFile, WorkspaceRoot, is_binary};

/// The beginning of a text file.
pub(in crate::app) struct FileExcerpt {
    /// Whole lines, with line feeds, unless the first line alone is too long.
    pub(in crate::app) text: String,
    /// Bytes of the file that are left out.
    pub(in crate::app) omitted_bytes: u64,
}

/// Reads the beginning of a file, up to a number of bytes; nothing if the file is not text.
pub(in crate::app) fn read_excerpt(
    root: &WorkspaceRoot,
    path: &RelPath,
    most: usize,
) -> Result<FileExcerpt, FileError> {
    let OpenFile { file, size } = root.open_file(path)?;
    let mut bytes = Vec::new();
    let read = file.take(most as u64).read_to_end(&mut bytes);
    read.map_err(|source| FileError::Io { action: "read", path: path.clone(), source })?;
    let size = size.max(bytes.len() as u64);
    let mut omitted = size - bytes.len() as u64;
    let Some(text) = TextFile::read(bytes).filter(|text| !is_binary(&text.content)) else {
        return Ok(FileExcerpt { text: String::new(), omitted_bytes: size });
    };
    let mut content = text.content;
    if omitted > 0 {
        let end = memchr::memrchr(b'\n', &content).map_or(content.len(), |end| end + 1);
        omitted += (content.len() - end) as u64;
        content.truncate(end);
    }
    Ok(FileExcerpt {
        text: String::from_utf8_lossy(&content).replace("\r\n", "\n"),
        omitted_bytes: omitted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(content: &[u8], most: usize) -> (String, u64) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), content).unwrap();
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        let FileExcerpt { text, omitted_bytes: omitted } =
            read_excerpt(&root, &RelPath::new("a").unwrap(), most).unwrap();
        (text, omitted)
    }

    #[test]
    fn whole_lines_are_kept_and_the_rest_is_counted() {
        assert_eq!(excerpt(b"one\r\ntwo\n", 100), ("one\ntwo\n".to_owned(), 0));
        assert_eq!(excerpt(b"one\ntwo\nthree", 9), ("one\ntwo\n".to_owned(), 5));
        assert_eq!(excerpt("\u{fffd}ä".as_bytes(), 3), ("\u{fffd}".to_owned(), 2));
    }

    #[test]
    fn of_a_file_that_is_not_text_nothing_is_shown() {
        assert_eq!(excerpt(b"a\0b\0", 100), (String::new(), 4));
    }
}
