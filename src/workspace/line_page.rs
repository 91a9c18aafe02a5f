//! Pages of a text by lines, read in bounded memory.

use std::io::{self, BufRead, Read as _};

/// The maximum size of a page, in bytes. A single line may be longer than any page.
pub const MAX_LINE_PAGE: usize = 64 << 10;

/// The beginning of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePosition {
    /// The line, counted from 1.
    pub line: u64,
    /// The number of bytes of this line that are omitted. A partly omitted character is omitted whole.
    pub byte: u64,
}

/// Some lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePage {
    /// The lines with their line ends.
    pub text: String,
    /// The number of bytes of the first line that are omitted before the page.
    pub byte: u64,
    /// The number of lines of the whole text.
    pub lines: u64,
    /// The number of bytes of the page's last line that don't fit into it.
    pub cut: u64,
}

impl LinePosition {
    /// Returns the beginning of a line.
    pub fn line(line: u64) -> Self {
        Self { line, byte: 0 }
    }
}

/// Reads a text to its end, and returns up to `limit` lines from a position on, but at most [`MAX_LINE_PAGE`] bytes.
///
/// # Errors
///
/// Fails if the text can't be read.
pub fn read_line_page(
    input: &mut impl BufRead,
    first: LinePosition,
    limit: u64,
) -> io::Result<LinePage> {
    let (mut page, mut lines, mut cut, mut byte) = (Vec::new(), 0, 0, first.byte);
    // Whether the first line is shorter than its omitted part. The page would then begin with another line.
    let mut is_behind_line = false;
    while !input.fill_buf()?.is_empty() {
        lines += 1;
        let is_wanted = lines >= first.line
            && lines - first.line < limit
            && page.len() < MAX_LINE_PAGE
            && cut == 0
            && !is_behind_line;
        if !is_wanted {
            input.skip_until(b'\n')?;
            continue;
        }
        let begin = if lines == first.line { first.byte } else { 0 };
        if skip_in_line(input, begin)? {
            is_behind_line = true;
            continue;
        }
        if begin > 0 {
            byte += skip_rest_of_char(input)?;
        }
        let space = (MAX_LINE_PAGE - page.len()) as u64;
        input.by_ref().take(space).read_until(b'\n', &mut page)?;
        if !page.ends_with(b"\n") {
            cut = input.skip_until(b'\n')? as u64;
            if let Err(error) = std::str::from_utf8(&page)
                && error.error_len().is_none()
            {
                cut += (page.len() - error.valid_up_to()) as u64;
                page.truncate(error.valid_up_to());
            }
        }
    }
    Ok(LinePage { text: String::from_utf8_lossy(&page).into_owned(), byte, lines, cut })
}

/// Skips the rest of a character that began earlier, and returns its size in bytes.
fn skip_rest_of_char(input: &mut impl BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    // A character has at most three continuation bytes.
    while skipped < 3 && input.fill_buf()?.first().is_some_and(|byte| byte & 0xc0 == 0x80) {
        input.consume(1);
        skipped += 1;
    }
    Ok(skipped)
}

/// Skips bytes of a line, and returns whether its end was among them.
fn skip_in_line(input: &mut impl BufRead, mut count: u64) -> io::Result<bool> {
    while count > 0 {
        let buffer = input.fill_buf()?;
        let length = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        if length == 0 {
            return Ok(true);
        }
        if let Some(end) = memchr::memchr(b'\n', &buffer[..length]) {
            input.consume(end + 1);
            return Ok(true);
        }
        input.consume(length);
        count -= length as u64;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(line: u64, byte: u64) -> (String, u64) {
        let page =
            read_line_page(&mut &b"abc\nde\nf\n"[..], LinePosition { line, byte }, 9).unwrap();
        (page.text, page.lines)
    }

    #[test]
    fn a_page_begins_within_its_line_or_is_empty() {
        assert_eq!(page(1, 0), ("abc\nde\nf\n".to_owned(), 3));
        assert_eq!(page(1, 2), ("c\nde\nf\n".to_owned(), 3));
        assert_eq!(page(2, 3), (String::new(), 3));
        assert_eq!(page(1, 99), (String::new(), 3));
    }

    #[test]
    fn a_page_begins_with_a_whole_character() {
        for (byte, expected) in
            [(0, (0, "aé😀b\n")), (1, (1, "é😀b\n")), (2, (3, "😀b\n")), (5, (7, "b\n"))]
        {
            let position = LinePosition { line: 1, byte };
            let page = read_line_page(&mut "aé😀b\n".as_bytes(), position, 9).unwrap();
            assert_eq!((page.byte, &*page.text), expected, "{byte}");
        }
    }
}
