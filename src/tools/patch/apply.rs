//! What hunks make of a content.
//!
//! A hunk is looked for as GNU `patch` does: first where its header says, as far as those before it have moved; then
//! line by line away from there. A place where all lines fit comes first; then one where the outermost line of what
//! surrounds the change differs, then two.

use super::hunk::{Hunk, Line};

/// Why hunks don't make anything of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) enum NotApplied {
    /// The lines of this hunk are not there; counted from zero.
    Hunk(usize),
    /// The content stays what it is.
    Unchanged,
}

/// How line ends are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// They are part of the line.
    Exact,
    /// They are the file's, whatever the patch has.
    OfTheFile,
}

/// Surrounding lines at each end of a hunk that may differ.
const FUZZ: usize = 2;

/// Returns what hunks make of a content. First they are taken at their word, line ends included; then with the line ends
/// of the file.
pub(in crate::tools) fn applied(content: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>, NotApplied> {
    let new = made(content, hunks, Ends::Exact).or_else(|hunk| {
        made(content, hunks, Ends::OfTheFile).map_err(|_| NotApplied::Hunk(hunk))
    })?;
    if new == content && !hunks.is_empty() { Err(NotApplied::Unchanged) } else { Ok(new) }
}

/// Applies hunks; fails with the first one that does not fit.
fn made(content: &[u8], hunks: &[Hunk], ends: Ends) -> Result<Vec<u8>, usize> {
    let file: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let mut new = Vec::with_capacity(content.len());
    let (mut done, mut offset) = (0, 0_isize);
    for (index, hunk) in hunks.iter().enumerate() {
        let place = Place { file: &file, from: done, hunk, old: hunk.before(), ends };
        // A hunk without old lines stands behind the line that its header names.
        let start = hunk.old_start.saturating_sub(usize::from(!place.old.is_empty()));
        let expected = start.saturating_add_signed(offset);
        let mut at = place.found(expected).ok_or(index)?;
        offset += at.cast_signed() - expected.cast_signed();
        for line in &hunk.lines {
            match line {
                Line::Same(_) => {
                    at += 1;
                    continue;
                }
                // What stays around a change is the file's, as it is there; and the next hunk may need it, too.
                Line::Removed(_) | Line::Added(_) => new.extend(file[done..at].concat()),
            }
            match line {
                Line::Added(text) => new.extend(ended(text, &file, at, ends)),
                Line::Removed(_) | Line::Same(_) => at += 1,
            }
            done = at;
        }
    }
    new.extend(file[done..].concat());
    Ok(new)
}

/// Returns an added line with the end that it gets.
fn ended(text: &str, file: &[&[u8]], at: usize, ends: Ends) -> Vec<u8> {
    let plain = text.trim_end_matches('\n').trim_end_matches('\r');
    let neighbour = file.get(at).or(file.last()).filter(|_| ends == Ends::OfTheFile);
    match neighbour {
        Some(line) if text.ends_with('\n') && line.ends_with(b"\r\n") => format!("{plain}\r\n"),
        Some(line) if text.ends_with('\n') && line.ends_with(b"\n") => format!("{plain}\n"),
        Some(_) | None => text.to_owned(),
    }
    .into()
}

/// Where a hunk is looked for.
struct Place<'a> {
    file: &'a [&'a [u8]],
    /// Lines before this one are settled.
    from: usize,
    hunk: &'a Hunk,
    old: Vec<&'a str>,
    ends: Ends,
}

impl Place<'_> {
    /// Returns where the old lines of the hunk stand, nearest to where they are expected.
    fn found(&self, expected: usize) -> Option<usize> {
        if self.old.is_empty() {
            // Nothing says where it belongs but its number; a new file, or an end.
            return (expected <= self.file.len() && expected >= self.from).then_some(expected);
        }
        let around = self.hunk.lead().max(self.hunk.tail());
        (0..=FUZZ.min(around)).find_map(|fuzz| self.found_with(fuzz, expected))
    }

    fn found_with(&self, fuzz: usize, expected: usize) -> Option<usize> {
        let (lead, tail) = (self.hunk.lead(), self.hunk.tail());
        // The side that has fewer lines around the change has lost them to the edge of the file.
        let left_out = |own: usize, other: usize| (fuzz + own).checked_sub(own.max(other));
        let (before, after) = (left_out(lead, tail), left_out(tail, lead));
        let fits = |at: &usize| self.fits(*at, before.unwrap_or(0), after.unwrap_or(0));
        let whole = self.old.len();
        if before.is_none() && self.hunk.old_start <= 1 {
            return Some(0)
                .filter(|_| self.from == 0 && (after.is_some() || whole == self.file.len()))
                .filter(fits);
        }
        if after.is_none() {
            let at = self.file.len().checked_sub(whole)?;
            return Some(at).filter(|at| *at >= self.from).filter(fits);
        }
        let last = (self.file.len() + after.unwrap_or(0)).checked_sub(whole)?;
        let last = Some(last).filter(|last| *last >= self.from)?;
        let expected = expected.clamp(self.from, last);
        let widest = (expected - self.from).max(last - expected);
        (0..=widest).find_map(|distance| {
            let behind = Some(expected + distance).filter(|at| *at <= last);
            let ahead = expected.checked_sub(distance).filter(|at| *at >= self.from);
            behind.filter(fits).or_else(|| ahead.filter(fits))
        })
    }

    /// Returns whether the old lines stand here, so many at each end left out.
    fn fits(&self, at: usize, before: usize, after: usize) -> bool {
        let compared = before..self.old.len() - after;
        compared.into_iter().all(|index| {
            let (old, line) = (self.old[index].as_bytes(), self.file.get(at + index));
            line.is_some_and(|line| match self.ends {
                Ends::Exact => old == *line,
                Ends::OfTheFile => plain(old) == plain(line),
            })
        })
    }
}

/// Returns a line without its end.
fn plain(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::patch::sections;

    fn apply(content: &str, hunks: &str) -> Result<String, NotApplied> {
        let sections = sections(&format!("--- a/x\n+++ b/x\n{hunks}")).unwrap();
        let new = applied(content.as_bytes(), &sections[0].hunks)?;
        Ok(String::from_utf8(new).unwrap())
    }

    #[test]
    fn hunks_are_found_where_they_moved_to() {
        let hunk = "@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n";
        assert_eq!(apply("a\nb\nc\nd\n", hunk).unwrap(), "a\nb\nC\nd\n");
        assert_eq!(apply("0\n0\n0\na\nb\nc\nd\n", hunk).unwrap(), "0\n0\n0\na\nb\nC\nd\n");
        assert_eq!(apply("a\nx\n", hunk), Err(NotApplied::Hunk(0)));
    }

    #[test]
    fn the_edges_may_be_different() {
        let hunk = "@@ -1,5 +1,5 @@\n a\n b\n-c\n+C\n d\n e\n";
        assert_eq!(apply("x\nb\nc\nd\ny\n", hunk).unwrap(), "x\nb\nC\nd\ny\n");
    }

    /// What had nothing behind it has nothing behind it: an end of the file stays one, whatever differs before it.
    #[test]
    fn an_end_stays_an_end() {
        let hunk = "@@ -5,3 +5,4 @@\n a\n b\n }\n+new\n";
        assert_eq!(apply("a\nb\n}\nx\nb\n}\n", hunk).unwrap(), "a\nb\n}\nx\nb\n}\nnew\n");
        assert_eq!(apply("a\nb\n}\nx\n", hunk), Err(NotApplied::Hunk(0)));
        let hunk = "@@ -1,3 +1,4 @@\n+new\n a\n b\n c\n";
        assert_eq!(apply("x\na\nb\nc\n", hunk), Err(NotApplied::Hunk(0)));
        assert_eq!(apply("a\nb\nx\n", hunk).unwrap(), "new\na\nb\nx\n");
    }

    #[test]
    fn line_ends_stay_and_can_be_changed() {
        let hunk = "@@ -1,2 +1,2 @@\n a\n-b\n+B\n";
        assert_eq!(apply("a\r\nb\r\n", hunk).unwrap(), "a\r\nB\r\n");
        assert_eq!(
            apply("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n").unwrap(),
            "a\r\nB\r\n"
        );
        assert_eq!(apply("a\n", "@@ -1 +1 @@\n-a\n+a\r\n").unwrap(), "a\r\n");
        assert_eq!(
            apply("a", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n").unwrap(),
            "a\n"
        );
        assert_eq!(
            apply("a\n", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n").unwrap(),
            "a"
        );
    }

    #[test]
    fn what_changes_nothing_is_told() {
        assert_eq!(apply("a\n", "@@ -1 +1 @@\n-a\n+a\n"), Err(NotApplied::Unchanged));
        assert_eq!(apply("a\nb\n", "@@ -1,2 +1,2 @@\n a\n b\n"), Err(NotApplied::Unchanged));
    }

    #[test]
    fn a_new_content_comes_from_nothing() {
        assert_eq!(apply("", "@@ -0,0 +1,2 @@\n+a\n+b\n").unwrap(), "a\nb\n");
        assert_eq!(apply("a\nb\n", "@@ -1,2 +0,0 @@\n-a\n-b\n").unwrap(), "");
        assert_eq!(apply("a\nb\n", "@@ -1,0 +2 @@\n+x\n").unwrap(), "a\nx\nb\n");
    }
}
