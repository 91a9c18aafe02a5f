//! Text files: content, byte order mark, encoding, line ends.

/// A decoded text file. Its content can be changed while the rest is preserved.
///
/// The content is UTF-8 if the file is Unicode, and otherwise the file's own bytes, so that an edit changes only its
/// target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// The content, without a byte order mark.
    pub content: Vec<u8>,
    /// The encoding of the file.
    pub encoding: Encoding,
}

/// The encoding of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8, or an unknown encoding whose bytes are preserved.
    Bytes,
    /// UTF-8 with a byte order mark.
    Utf8Bom,
    /// UTF-16, little endian, with a byte order mark.
    Utf16Le,
    /// UTF-16, big endian, with a byte order mark.
    Utf16Be,
}

const UTF8: &[u8] = b"\xef\xbb\xbf";
const UTF16_LE: &[u8] = b"\xff\xfe";
const UTF16_BE: &[u8] = b"\xfe\xff";

/// The number of bytes of a file that are examined to recognize text.
const SAMPLE_SIZE: usize = 8 * 1024;

impl Encoding {
    /// Detects the encoding by the first bytes of a file.
    pub fn detect(start: &[u8]) -> Self {
        match start {
            [0xef, 0xbb, 0xbf, ..] => Self::Utf8Bom,
            [0xff, 0xfe, ..] => Self::Utf16Le,
            [0xfe, 0xff, ..] => Self::Utf16Be,
            _ => Self::Bytes,
        }
    }

    /// Returns whether a character takes at least two bytes.
    pub fn is_wide(self) -> bool {
        matches!(self, Self::Utf16Le | Self::Utf16Be)
    }
}

impl TextFile {
    /// Decodes a file; `None` for invalid UTF-16.
    pub fn read(bytes: Vec<u8>) -> Option<Self> {
        let encoding = Encoding::detect(&bytes);
        let wide = |unit: fn([u8; 2]) -> u16| {
            let (units, rest) = bytes[2..].as_chunks();
            let units = units.iter().map(|pair| unit(*pair));
            let text = char::decode_utf16(units).collect::<Result<String, _>>().ok()?;
            rest.is_empty().then_some(text.into_bytes())
        };
        let content = match encoding {
            Encoding::Bytes => bytes,
            Encoding::Utf8Bom => bytes[UTF8.len()..].to_vec(),
            Encoding::Utf16Le => wide(u16::from_le_bytes)?,
            Encoding::Utf16Be => wide(u16::from_be_bytes)?,
        };
        Some(Self { content, encoding })
    }

    /// Encodes another content in the same encoding; `None` if the encoding cannot represent it.
    pub fn encode(&self, content: &[u8]) -> Option<Vec<u8>> {
        let wide = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
            let text = std::str::from_utf8(content).ok()?;
            Some(mark.iter().copied().chain(text.encode_utf16().flat_map(bytes)).collect())
        };
        match self.encoding {
            Encoding::Bytes => Some(content.to_vec()),
            Encoding::Utf8Bom => Some([UTF8, content].concat()),
            Encoding::Utf16Le => wide(UTF16_LE, u16::to_le_bytes),
            Encoding::Utf16Be => wide(UTF16_BE, u16::to_be_bytes),
        }
    }

    /// Returns whether an addition would mix UTF-8 into a text of another encoding, which has non-ASCII bytes that are
    /// not UTF-8. UTF-16 can represent every character.
    pub fn would_mix_encodings(content: &[u8], added: &str) -> bool {
        !added.is_ascii()
            && !Encoding::detect(content).is_wide()
            && std::str::from_utf8(content).is_err()
            && content.utf8_chunks().all(|chunk| chunk.valid().is_ascii())
    }

    /// Returns the line end for an added line: CR LF if all lines end with it, and otherwise LF.
    pub fn line_end(&self) -> &'static [u8] {
        let mut feeds = memchr::memchr_iter(b'\n', &self.content).peekable();
        let is_ended = feeds.peek().is_some();
        let is_crlf = feeds.all(|at| self.content[..at].ends_with(b"\r"));
        if is_ended && is_crlf { b"\r\n" } else { b"\n" }
    }
}

/// Returns whether a file with this beginning is not text.
pub fn is_binary(start: &[u8]) -> bool {
    let sample = &start[..start.len().min(SAMPLE_SIZE)];
    !Encoding::detect(sample).is_wide() && sample.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        UTF16_LE.iter().copied().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
    }

    #[test]
    fn decoding_and_encoding_are_inverse() {
        for bytes in [&b"a\r\nb"[..], b"\xef\xbb\xbfa\n", b"\xff\xfe", b"a\xffb", &utf16("é😀\n")]
        {
            let text = TextFile::read(bytes.to_vec()).unwrap();
            assert_eq!(text.encode(&text.content).unwrap(), bytes);
        }
        assert_eq!(TextFile::read(utf16("é😀\n")).unwrap().content, "é😀\n".as_bytes());
    }

    #[test]
    fn broken_utf16_is_not_read() {
        assert_eq!(TextFile::read(b"\xff\xfea".to_vec()), None);
        assert_eq!(TextFile::read(b"\xff\xfe\x00\xd8".to_vec()), None);
    }

    #[test]
    fn line_ends_are_recognized() {
        let end = |text: &str| TextFile::read(text.into()).unwrap().line_end();
        assert_eq!(end("a"), b"\n");
        assert_eq!(end("a\nb\n"), b"\n");
        assert_eq!(end("a\r\nb\r\n"), b"\r\n");
        assert_eq!(end("a\r\nb\n"), b"\n");
    }

    #[test]
    fn a_zero_byte_makes_a_file_binary_unless_it_is_utf16() {
        assert!(is_binary(b"\x7fELF\0"));
        assert!(!is_binary(&utf16("a")));
        assert!(!is_binary(b"plain"));
    }
}
