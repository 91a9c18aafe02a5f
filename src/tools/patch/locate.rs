//! Locates hunks without line numbers.
//!
//! Lines are compared exactly at first; then without trailing white space; then also without leading white space; then
//! with typographic punctuation and spaces replaced by ASCII, since models don't always repeat them. All comparisons
//! except the first require a unique match.

use super::hunk::{PatchError, without_line_end};

/// The comparison of lines. Line ends are always ignored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineComparison {
    Exact,
    WithoutTrailingSpace,
    WithoutSpaceAround,
    WithPlainPunctuation,
}

/// Returns the position of lines after the processed ones.
///
/// Without headers, the position must be unique. With headers, it is the first position after them; if there are
/// several, the outermost header must be unique.
pub(super) fn find_lines(
    file: &[&[u8]],
    from: usize,
    hunk: usize,
    old: &[&str],
    headers: &[String],
    is_at_end: bool,
) -> Result<usize, PatchError> {
    let (begin, is_certain) = find_headers(file, from, headers)
        .map_err(|header| PatchError::HeaderNotFound(hunk, header))?;
    let last = file.len().checked_sub(old.len()).ok_or(PatchError::NotFound(hunk))?;
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
            (times, Some(_)) => return Err(PatchError::Ambiguous(hunk, times)),
        }
    }
    Err(PatchError::NotFound(hunk))
}

/// Returns the line of the innermost header, and whether it is unambiguous; fails with the header that does not occur.
fn find_headers(file: &[&[u8]], from: usize, headers: &[String]) -> Result<(usize, bool), String> {
    let is_line = |header: &String, line: &[u8]| line.trim_ascii() == header.trim().as_bytes();
    let mut begin = from;
    let mut next = from;
    for header in headers {
        let found = file.iter().skip(next).position(|line| is_line(header, line));
        begin = next + found.ok_or_else(|| header.clone())?;
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

/// Replaces a typographic dash, quotation mark or space by its ASCII equivalent.
fn plain_punctuation(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        c => c,
    }
}
