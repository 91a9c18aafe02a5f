//! Replaces occurrences of a text.

use std::borrow::Cow;

use memchr::memmem;

/// The reason why nothing was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotReplaced {
    /// The text does not occur.
    Missing,
    /// The text occurs more than once, this number of times.
    Ambiguous(usize),
    /// The replacement equals the original.
    Unchanged,
}

/// The occurrences to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occurrences {
    /// The only occurrence; several are an error.
    One,
    /// All occurrences.
    All,
}

/// Replaces `old` by `new`, and returns the new text with the number of replacements. Line ends are not compared:
/// models write line feeds, and the file keeps its own line ends.
///
/// # Errors
///
/// Fails if `old` does not occur, or occurs more than once with [`Occurrences::One`].
pub(super) fn replace(
    text: &[u8],
    old: &[u8],
    new: &[u8],
    places: Occurrences,
) -> Result<(Vec<u8>, usize), NotReplaced> {
    let (old, new) = (with_lf(old), with_lf(new));
    let plain = with_lf(text);
    let found: Vec<usize> = memmem::find_iter(&plain, &old).collect();
    match (found.len(), places) {
        (0, _) => return Err(NotReplaced::Missing),
        (1, _) | (_, Occurrences::All) => {}
        (_, Occurrences::One) => return Err(NotReplaced::Ambiguous(found.len())),
    }
    if places == Occurrences::One && has_overlapping_match(&plain, &old, found[0]) {
        return Err(NotReplaced::Ambiguous(2));
    }
    let original = OriginalOffsets::of(text, plain.len());
    let mut after = Vec::with_capacity(text.len() + new.len());
    let mut copied = 0;
    for start in &found {
        let (from, to) = (original.offset(*start), original.offset(start + old.len()));
        after.extend_from_slice(&text[copied..from]);
        if ends_with_crlf(text, from, to) {
            after.extend(with_crlf(&new));
        } else {
            after.extend_from_slice(&new);
        }
        copied = to;
    }
    after.extend_from_slice(&text[copied..]);
    if after == text { Err(NotReplaced::Unchanged) } else { Ok((after, found.len())) }
}

/// Returns whether `piece` occurs again after `first`, including overlapping occurrences.
fn has_overlapping_match(text: &[u8], piece: &[u8], first: usize) -> bool {
    memmem::find(&text[first + 1..], piece).is_some()
}

/// Returns whether the lines of an occurrence end with CR LF; within a line, those of its surroundings.
fn ends_with_crlf(text: &[u8], from: usize, to: usize) -> bool {
    let first_end =
        |bytes: &[u8]| memchr::memchr(b'\n', bytes).map(|end| end > 0 && bytes[end - 1] == b'\r');
    let last_end =
        |bytes: &[u8]| memchr::memrchr(b'\n', bytes).map(|end| end > 0 && bytes[end - 1] == b'\r');
    first_end(&text[from..to])
        .or_else(|| first_end(&text[from..]))
        .or_else(|| last_end(&text[..from]))
        .unwrap_or(false)
}

/// Maps positions in a text with LF line ends to positions in the original.
struct OriginalOffsets {
    /// The positions in the LF text at which a carriage return was removed.
    removed_at: Vec<usize>,
}

impl OriginalOffsets {
    fn of(text: &[u8], length: usize) -> Self {
        let mut left_out = Vec::with_capacity(text.len() - length);
        if text.len() > length {
            for at in memmem::find_iter(text, b"\r\n") {
                left_out.push(at - left_out.len());
            }
        }
        Self { removed_at: left_out }
    }

    /// Returns the original position; between a carriage return and its line feed, the position before the carriage
    /// return.
    fn offset(&self, place: usize) -> usize {
        place + self.removed_at.partition_point(|left_out| *left_out < place)
    }
}

/// Converts CR LF to LF.
fn with_lf(text: &[u8]) -> Cow<'_, [u8]> {
    if memmem::find(text, b"\r\n").is_none() {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut copied) = (Vec::with_capacity(text.len()), 0);
    for at in memmem::find_iter(text, b"\r\n") {
        plain.extend_from_slice(&text[copied..at]);
        copied = at + 1;
    }
    plain.extend_from_slice(&text[copied..]);
    Cow::Owned(plain)
}

/// Converts every line end to CR LF.
pub(super) fn with_crlf(text: &[u8]) -> Vec<u8> {
    let mut wide = Vec::with_capacity(text.len() + 16);
    for byte in with_lf(text).iter() {
        if *byte == b'\n' {
            wide.push(b'\r');
        }
        wide.push(*byte);
    }
    wide
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str, old: &str, new: &str) -> Result<String, NotReplaced> {
        let replaced = replace(text.as_bytes(), old.as_bytes(), new.as_bytes(), Occurrences::One);
        replaced.map(|(text, _)| String::from_utf8(text).unwrap())
    }

    #[test]
    fn exactly_one_occurrence_is_replaced() {
        assert_eq!(one("a b c", "b", "x").unwrap(), "a x c");
        assert_eq!(one("a b c", "z", "x"), Err(NotReplaced::Missing));
        assert_eq!(one("a a", "a", "x"), Err(NotReplaced::Ambiguous(2)));
        assert_eq!(one("aaa", "aa", "x"), Err(NotReplaced::Ambiguous(2)));
        assert_eq!(one("a", "a", "a"), Err(NotReplaced::Unchanged));
        let all = replace(b"a a", b"a", b"x", Occurrences::All).unwrap();
        assert_eq!(all, (b"x x".to_vec(), 2));
    }

    #[test]
    fn line_ends_are_preserved() {
        assert_eq!(one("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n").unwrap(), "x\r\ny\r\nz\r\nc\r\n");
        assert_eq!(one("a\r\nb", "b", "x\ny").unwrap(), "a\r\nx\r\ny");
        assert_eq!(one("a\nb\n", "a\r\nb", "x\r\ny").unwrap(), "x\ny\n");
        assert_eq!(one("a\r\nb\nc\n", "c", "x\ny").unwrap(), "a\r\nb\nx\ny\n");
    }

    #[test]
    fn a_line_end_after_the_replaced_text_is_preserved() {
        assert_eq!(one("a\r\nb\r\n", "a", "x").unwrap(), "x\r\nb\r\n");
        assert_eq!(one("a\r\nb\r\n", "\nb", "\nx").unwrap(), "a\r\nx\r\n");
    }

    proptest! {
        #[test]
        fn a_replacement_is_the_same_with_both_line_ends(
            before in "[ab\n]{0,12}", old in "[xy\n]{0,3}x", new in "[cd\n]{0,6}", after in "[ab\n]{0,12}",
        ) {
            let text = format!("{before}{old}{after}");
            let wide = |text: &str| String::from_utf8(with_crlf(text.as_bytes())).unwrap();
            // A file without line ends gets LF.
            prop_assume!(text.contains('\n'));
            if let Ok(replaced) = one(&text, &old, &new) {
                prop_assert_eq!(one(&wide(&text), &old, &new).unwrap(), wide(&replaced));
            }
        }
    }
}
