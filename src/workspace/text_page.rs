//! Pages of a text, read without loading the rest.

use std::io::{self, BufRead};

/// A range of lines of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPage {
    /// The lines, including line ends. An overlong line is cut and marked.
    pub content: Vec<u8>,
    /// The number of the first line, counted from one.
    pub first: u64,
    /// The number of lines on the page.
    pub lines: u64,
    /// The number of lines of the text; `None` if it was too long to count.
    pub total: Option<u64>,
    /// Whether lines were omitted because the page was full.
    pub is_full: bool,
}

/// The limits of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// The maximum number of lines.
    pub lines: u64,
    /// The maximum bytes of the page.
    pub bytes: usize,
    /// The maximum bytes of one line.
    pub line_bytes: usize,
    /// The maximum bytes that are read to find the first line, and to count the lines after the page.
    pub scan: u64,
}

impl TextPage {
    /// Reads the page that begins with line `first`, counted from one.
    ///
    /// # Errors
    ///
    /// Fails if the text cannot be read.
    pub fn read(text: impl BufRead, first: u64, limits: PageLimits) -> io::Result<Self> {
        let mut text = text.take(limits.scan);
        let mut page = Self { first: first.max(1), ..Self::default() };
        let mut number = 0;
        loop {
            let is_behind = number + 1 >= page.first;
            let is_wanted = is_behind && !page.is_full && page.lines < limits.lines;
            let left = limits.bytes.saturating_sub(page.content.len());
            let most = if is_wanted { limits.line_bytes.min(left) } else { 0 };
            let before = page.content.len();
            let length = copy_line(&mut text, most, &mut page.content)?;
            if length == 0 {
                break;
            }
            number += 1;
            // A line is cut only if it exceeds its own limit. A line that does not fit on the page is omitted.
            let does_not_fit = length > most && most < limits.line_bytes && page.lines > 0;
            if !is_wanted || does_not_fit {
                page.content.truncate(before);
                page.is_full |= is_behind;
                continue;
            }
            if length > most {
                page.truncate_last_line(before, length);
            }
            page.lines += 1;
        }
        page.total = (text.limit() > 0).then_some(number);
        page.is_full |= page.total.is_none();
        Ok(page)
    }

    /// Returns the number of the last line on the page, or of the line before the page if the page is empty.
    pub fn last_line(&self) -> u64 {
        self.first + self.lines - 1
    }

    /// Ends a cut last line at a character boundary, with a note.
    fn truncate_last_line(&mut self, start: usize, length: usize) {
        let kept = last_char_boundary(&self.content[start..]);
        self.content.truncate(start + kept);
        let note = format!("[... {} bytes of this line omitted ...]\n", length - kept);
        self.content.extend(note.into_bytes());
    }
}

/// Copies at most `most` bytes of the next line. Returns the length of the line with its end; 0 at the end of the text.
fn copy_line(text: &mut impl BufRead, most: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        let buffer = text.fill_buf()?;
        let end = memchr::memchr(b'\n', buffer);
        let piece = &buffer[..end.map_or(buffer.len(), |end| end + 1)];
        let left = most.saturating_sub(length).min(piece.len());
        into.extend_from_slice(&piece[..left]);
        let read = piece.len();
        length += read;
        text.consume(read);
        if end.is_some() || read == 0 {
            return Ok(length);
        }
    }
}

/// Returns the last position at which a text can be cut without splitting a character.
fn last_char_boundary(bytes: &[u8]) -> usize {
    let is_start = |byte: &u8| byte & 0xc0 != 0x80;
    match bytes.iter().rposition(is_start) {
        Some(start) if std::str::from_utf8(&bytes[start..]).is_err() => start,
        Some(_) | None => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    const LIMITS: PageLimits = PageLimits { lines: 2, bytes: 100, line_bytes: 10, scan: 1_000 };

    fn page(text: &str, first: u64, limits: PageLimits) -> TextPage {
        TextPage::read(text.as_bytes(), first, limits).unwrap()
    }

    #[test]
    fn a_page_has_the_requested_lines_and_the_total() {
        let page = page("a\nb\r\nc\nd", 2, LIMITS);
        assert_eq!(page.content, b"b\r\nc\n");
        assert_eq!((page.last_line(), page.total, page.is_full), (3, Some(4), true));
    }

    #[test]
    fn the_last_page_is_marked() {
        let page = page("a\nb\nc", 2, LIMITS);
        assert_eq!((page.content.as_slice(), page.is_full), (&b"b\nc"[..], false));
        let behind = self::page("a\n", 5, LIMITS);
        assert_eq!((behind.lines, behind.total, behind.is_full), (0, Some(1), false));
    }

    /// Fault T7: a line longer than every limit.
    #[test]
    fn a_long_line_is_cut_between_characters() {
        let page = page("ééééééé\nb\n", 1, LIMITS);
        let cut = "ééééé[... 5 bytes of this line omitted ...]\nb\n";
        assert_eq!(String::from_utf8(page.content).unwrap(), cut);
        assert_eq!(page.lines, 2);
    }

    #[test]
    fn a_line_that_does_not_fit_is_left_for_the_next_page() {
        let page = page("12345\n6789\n", 1, PageLimits { bytes: 8, ..LIMITS });
        assert_eq!((page.content.as_slice(), page.is_full), (&b"12345\n"[..], true));
        assert_eq!(page.total, Some(2));
    }

    /// Fault R5: nothing is read beyond the limit.
    #[test]
    fn an_endless_text_is_not_read_to_its_end() {
        let page = TextPage::read(BufReader::new(io::repeat(b'\n')), 1, LIMITS).unwrap();
        assert_eq!((page.lines, page.total, page.is_full), (2, None, true));
    }
}
