//! What of a text file is not content: byte order mark, encoding, line ends.

/// A text file, taken apart so that its content can be changed and the rest stays.
///
/// The content is bytes: UTF-8 where the file is Unicode, and the file's own bytes where its encoding is not known, so
/// that an edit changes nothing but what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// The content, without a byte order mark.
    pub content: Vec<u8>,
    /// How it is stored.
    pub encoding: Encoding,
}

/// How a text file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8, or an encoding that cannot be told; its bytes are kept.
    Bytes,
    /// UTF-8 with a byte order mark.
    Utf8Bom,
    /// UTF-16, little endian, with a byte order mark.
    Utf16Le,
    /// UTF-16, big endian, with a byte order mark.
    Utf16Be,
}

/// How the lines of a text end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineEnd {
    /// With a line feed, all of them.
    Lf,
    /// With a carriage return and a line feed, all of them.
    CrLf,
    /// Some like this and some like that.
    Mixed,
}

const UTF8: &[u8] = b"\xef\xbb\xbf";
const UTF16_LE: &[u8] = b"\xff\xfe";
const UTF16_BE: &[u8] = b"\xfe\xff";

/// How much of a file is looked at to tell whether it is text.
const SAMPLE_SIZE: usize = 8 * 1024;

impl Encoding {
    /// Returns the encoding that the first bytes of a file show.
    pub fn detect(start: &[u8]) -> Self {
        match start {
            [0xef, 0xbb, 0xbf, ..] => Self::Utf8Bom,
            [0xff, 0xfe, ..] => Self::Utf16Le,
            [0xfe, 0xff, ..] => Self::Utf16Be,
            _ => Self::Bytes,
        }
    }

    /// Returns whether a character takes two bytes or more.
    pub fn is_wide(self) -> bool {
        matches!(self, Self::Utf16Le | Self::Utf16Be)
    }
}

impl TextFile {
    /// Takes a file apart; none when it claims to be UTF-16 and isn't.
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

    /// Returns the file with another content; none when the encoding cannot hold it.
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

    /// Returns whether what is added would mix UTF-8 into a text of another encoding: one in which no character beyond
    /// ASCII is UTF-8. A text in UTF-16 takes every character.
    pub fn would_mix_encodings(content: &[u8], added: &str) -> bool {
        !added.is_ascii()
            && !Encoding::detect(content).is_wide()
            && std::str::from_utf8(content).is_err()
            && content.utf8_chunks().all(|chunk| chunk.valid().is_ascii())
    }

    /// Returns how its lines end; none when it has just one.
    pub fn line_end(&self) -> Option<LineEnd> {
        let mut found = None;
        for (index, _) in self.content.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            let is_crlf = index > 0 && self.content[index - 1] == b'\r';
            let end = if is_crlf { LineEnd::CrLf } else { LineEnd::Lf };
            match found {
                None => found = Some(end),
                Some(before) if before == end => {}
                Some(_) => return Some(LineEnd::Mixed),
            }
        }
        found
    }
}

/// Returns whether a file that starts like this is no text.
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
    fn a_file_that_is_taken_apart_is_put_together_again() {
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
    fn line_ends_are_told_apart() {
        let end = |text: &str| TextFile::read(text.into()).unwrap().line_end();
        assert_eq!(end("a"), None);
        assert_eq!(end("a\nb\n"), Some(LineEnd::Lf));
        assert_eq!(end("a\r\nb\r\n"), Some(LineEnd::CrLf));
        assert_eq!(end("a\r\nb\n"), Some(LineEnd::Mixed));
    }

    #[test]
    fn a_zero_byte_makes_a_file_binary_unless_it_is_utf16() {
        assert!(is_binary(b"\x7fELF\0"));
        assert!(!is_binary(&utf16("a")));
        assert!(!is_binary(b"plain"));
    }
}
