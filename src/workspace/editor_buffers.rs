//! The open files of an editor. Their text may differ from the files on disk.

use std::fmt;
use std::path::Path;

/// The open files of an editor.
pub trait EditorBuffers: Send + Sync {
    /// Returns the text of a file in the editor; `None` if the editor doesn't provide it.
    fn read(&self, path: &Path) -> Option<String>;

    /// Informs the editor of the new text of a file, which is already on disk.
    fn on_written(&self, path: &Path, text: &str);
}

impl fmt::Debug for dyn EditorBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EditorBuffers")
    }
}

/// The byte order mark at the beginning of some files in UTF-8, which editors omit from the text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Returns the content of a file whose text in the editor differs from that on disk. Line ends and the byte order mark
/// are taken from the file, because editors separate them from the text.
pub(super) fn unsaved_content(disk: &[u8], buffer: &str) -> Option<Vec<u8>> {
    let disk = std::str::from_utf8(disk).ok()?;
    let (mark, disk) = match disk.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (BYTE_ORDER_MARK, rest),
        None => ("", disk),
    };
    let buffer = buffer.strip_prefix(BYTE_ORDER_MARK).unwrap_or(buffer);
    let has_crlf = disk.contains("\r\n");
    let text = match has_crlf && !buffer.contains("\r\n") {
        true => buffer.replace('\n', "\r\n"),
        false => buffer.to_owned(),
    };
    (text != disk).then(|| format!("{mark}{text}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_of_the_text_counts() {
        let content = |disk: &str, buffer: &str| {
            unsaved_content(disk.as_bytes(), buffer).map(|it| String::from_utf8(it).unwrap())
        };
        assert_eq!(content("a\n", "a\n"), None);
        assert_eq!(content("a\r\nb\r\n", "a\nb\n"), None);
        assert_eq!(content("\u{feff}a\n", "a\n"), None);
        assert_eq!(content("\u{feff}a\r\n", "b\n").unwrap(), "\u{feff}b\r\n");
        assert_eq!(content("", "new\n").unwrap(), "new\n");
        assert_eq!(unsaved_content(b"\xff", "text"), None);
    }
}
