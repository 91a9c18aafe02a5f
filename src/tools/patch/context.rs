//! Where a hunk without a line number belongs.
//!
//! Its lines have to name one place. They are compared as they are first; then without the white space at their ends;
//! then without that at their beginnings too; then with plain punctuation and spaces for those beyond ASCII, which models
//! don't always repeat. In all ways but the first nothing but a single place will do.

use super::apply::{NotApplied, plain};

/// Why no place was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotFound {
    /// The lines are not there.
    Missing,
    /// They are there so many times.
    Ambiguous(usize),
    /// This line, which is named as standing before them, is not there.
    Header(String),
}

/// How lines are compared; their ends never are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    Whole,
    WithoutTrailingSpace,
    WithoutSpaceAround,
    WithPlainPunctuation,
}

impl NotFound {
    /// Returns the same for a hunk.
    pub(super) fn of(self, hunk: usize) -> NotApplied {
        match self {
            Self::Missing => NotApplied::Hunk(hunk),
            Self::Ambiguous(times) => NotApplied::Ambiguous(hunk, times),
            Self::Header(header) => NotApplied::Header(hunk, header),
        }
    }
}

/// Returns where lines stand, behind the settled ones.
///
/// Without headers there has to be one place. With headers it is the first one behind them, and when there are several
/// places, the outermost header has to stand there only once.
pub(super) fn found(
    file: &[&[u8]],
    from: usize,
    old: &[&str],
    headers: &[String],
    is_at_end: bool,
) -> Result<usize, NotFound> {
    let (begin, is_certain) = behind(file, from, headers)?;
    let Some(last) = file.len().checked_sub(old.len()) else { return Err(NotFound::Missing) };
    for compared in [
        Compared::Whole,
        Compared::WithoutTrailingSpace,
        Compared::WithoutSpaceAround,
        Compared::WithPlainPunctuation,
    ] {
        let is_here = |at: &usize| {
            (!is_at_end || *at == last)
                && old.iter().zip(&file[*at..]).all(|(a, b)| compared.same(a.as_bytes(), b))
        };
        let places: Vec<usize> = (from..=last).filter(is_here).collect();
        let first = places.iter().find(|at| **at >= begin);
        match (places.len(), first) {
            (_, None) => {}
            (1, Some(at)) => return Ok(*at),
            (_, Some(at)) if is_certain && compared == Compared::Whole => return Ok(*at),
            (times, Some(_)) => return Err(NotFound::Ambiguous(times)),
        }
    }
    Err(NotFound::Missing)
}

/// Returns the line of the innermost header, and whether it is the only one that can be meant.
fn behind(file: &[&[u8]], from: usize, headers: &[String]) -> Result<(usize, bool), NotFound> {
    let is_line = |header: &String, line: &[u8]| line.trim_ascii() == header.trim().as_bytes();
    let mut begin = from;
    let mut next = from;
    for header in headers {
        let found = file.iter().skip(next).position(|line| is_line(header, line));
        begin = next + found.ok_or_else(|| NotFound::Header(header.clone()))?;
        next = begin + 1;
    }
    let times =
        |header: &String| file.iter().skip(from).filter(|line| is_line(header, line)).count();
    Ok((begin, headers.first().is_some_and(|header| times(header) == 1)))
}

impl Compared {
    fn same(self, a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (plain(a), plain(b));
        match self {
            Self::Whole => a == b,
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
