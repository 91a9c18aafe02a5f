//! Where a hunk without a line number belongs.
//!
//! Its lines have to name one place. They are compared as they are first; then without the white space at their ends;
//! then without that at their beginnings too; then with plain punctuation and spaces for those beyond ASCII, which models
//! don't always repeat. In all ways but the first nothing but a single place will do.

use super::apply::{PatchError, without_line_end};

/// Why no place was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LocateError {
    /// The lines are not there.
    Missing,
    /// They are there so many times.
    Ambiguous(usize),
    /// This line, which is named as standing before them, is not there.
    Header(String),
}

/// How lines are compared; their ends never are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineComparison {
    Exact,
    WithoutTrailingSpace,
    WithoutSpaceAround,
    WithPlainPunctuation,
}

impl LocateError {
    /// Returns the same for a hunk.
    pub(super) fn into_patch_error(self, hunk: usize) -> PatchError {
        match self {
            Self::Missing => PatchError::NotFound(hunk),
            Self::Ambiguous(times) => PatchError::Ambiguous(hunk, times),
            Self::Header(header) => PatchError::HeaderNotFound(hunk, header),
        }
    }
}

/// Returns where lines stand, behind the settled ones.
///
/// Without headers there has to be one place. With headers it is the first one behind them, and when there are several
/// places, the outermost header has to stand there only once.
pub(super) fn find_lines(
    file: &[&[u8]],
    from: usize,
    old: &[&str],
    headers: &[String],
    is_at_end: bool,
) -> Result<usize, LocateError> {
    let (begin, is_certain) = find_headers(file, from, headers)?;
    let Some(last) = file.len().checked_sub(old.len()) else { return Err(LocateError::Missing) };
    for compared in [
        LineComparison::Exact,
        LineComparison::WithoutTrailingSpace,
        LineComparison::WithoutSpaceAround,
        LineComparison::WithPlainPunctuation,
    ] {
        let is_here = |at: &usize| {
            (!is_at_end || *at == last)
                && old.iter().zip(&file[*at..]).all(|(a, b)| compared.is_equal(a.as_bytes(), b))
        };
        let places: Vec<usize> = (from..=last).filter(is_here).collect();
        let first = places.iter().find(|at| **at >= begin);
        match (places.len(), first) {
            (_, None) => {}
            (1, Some(at)) => return Ok(*at),
            (_, Some(at)) if is_certain && compared == LineComparison::Exact => return Ok(*at),
            (times, Some(_)) => return Err(LocateError::Ambiguous(times)),
        }
    }
    Err(LocateError::Missing)
}

/// Returns the line of the innermost header, and whether it is the only one that can be meant.
fn find_headers(
    file: &[&[u8]],
    from: usize,
    headers: &[String],
) -> Result<(usize, bool), LocateError> {
    let is_line = |header: &String, line: &[u8]| line.trim_ascii() == header.trim().as_bytes();
    let mut begin = from;
    let mut next = from;
    for header in headers {
        let found = file.iter().skip(next).position(|line| is_line(header, line));
        begin = next + found.ok_or_else(|| LocateError::Header(header.clone()))?;
        next = begin + 1;
    }
    let times =
        |header: &String| file.iter().skip(from).filter(|line| is_line(header, line)).count();
    Ok((begin, headers.first().is_some_and(|header| times(header) == 1)))
}

impl LineComparison {
    fn is_equal(self, a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (without_line_end(a), without_line_end(b));
        match self {
            Self::Exact => a == b,
            Self::WithoutTrailingSpace => a.trim_ascii_end() == b.trim_ascii_end(),
            Self::WithoutSpaceAround => a.trim_ascii() == b.trim_ascii(),
            Self::WithPlainPunctuation => {
                let (Ok(a), Ok(b)) = (str::from_utf8(a), str::from_utf8(b)) else { return false };
                a.trim().chars().map(plain_punctuation).eq(b.trim().chars().map(plain_punctuation))
            }
        }
    }
}

/// Returns the character of ASCII that is typed for a dash, a quotation mark or a space; any other one as it is.
fn plain_punctuation(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        c => c,
    }
}
