//! Applies hunks to the content of a file.
//!
//! A hunk with a line number is located as in GNU `patch`: first at the line in its header, plus the offset of the
//! previous hunk; then line by line away from there. A position where all lines match is preferred to one where the
//! outermost context line differs, which is preferred to one where two differ. At least one line has to match.
//!
//! The result is built line by line, so that lines are never joined, whatever line ends the patch and the file have. A
//! replaced line keeps its line end unless the patch changes it.

use super::hunk::{
    FinalNewline, Hunk, HunkLine, HunkPosition, LineKind, PatchError, without_line_end,
};
use super::locate;

/// The comparison of line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEndMatch {
    /// Line ends are part of the line.
    Exact,
    /// Line ends are ignored; those of the file are kept.
    Ignored,
}

/// The maximum number of context lines at each end of a hunk that may differ.
const MAX_FUZZ: usize = 2;

/// The reason why a hunk can only match at the start or the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum Edge {
    /// At the start: its header names line 1, and it has too few context lines before its change.
    Start,
    /// At the end: it has too few context lines after its change.
    End,
    /// At the end: the patch declares it.
    DeclaredEnd,
}

/// Returns the reason why a hunk can only match at the start or the end of the file, and the line, counted from zero,
/// where its lines occur instead. `None` if the hunk failed for another reason.
pub(in crate::tools) fn misplaced(content: &[u8], hunk: &Hunk) -> Option<(Edge, usize)> {
    let old = hunk.old_lines();
    let (lead, tail) = (hunk.leading_context(), hunk.trailing_context());
    // As when locating a hunk, missing context on one side is dropped on the other, and at least one line is compared.
    let lacking = lead.abs_diff(tail);
    let is_bound = lacking > MAX_FUZZ || old.len() <= lacking;
    let edge = match hunk.position {
        HunkPosition::Context { is_at_end, .. } => is_at_end.then_some(Edge::DeclaredEnd),
        HunkPosition::Line { .. } if !is_bound => None,
        HunkPosition::Line { .. } if lead > tail => Some(Edge::End),
        HunkPosition::Line { start, .. } => (start <= 1).then_some(Edge::Start),
    }?;
    let file: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let last = file.len().checked_sub(old.len()).filter(|_| !old.is_empty())?;
    let same =
        |(a, b): (&&str, &&[u8])| without_any_line_end(a.as_bytes()) == without_any_line_end(b);
    let is_here = |at: &usize| old.iter().zip(&file[*at..]).all(same);
    let wanted = match edge {
        Edge::Start => 0,
        Edge::End | Edge::DeclaredEnd => last,
    };
    let found = (0..=last).find(is_here)?;
    (!is_here(&wanted)).then_some((edge, found))
}

/// Applies hunks to a content.
pub(in crate::tools) fn apply_hunks(content: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>, PatchError> {
    let file: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let mut new = ContentBuilder {
        bytes: Vec::with_capacity(content.len()),
        final_newline: FinalNewline::Specified,
    };
    let (mut done, mut offset) = (0, 0_isize);
    let mut at_end = Vec::new();
    for (index, hunk) in hunks.iter().enumerate() {
        let (at, ends) = match &hunk.position {
            HunkPosition::Line { start, count } => {
                let search = HunkSearch { file: &file, from: done, hunk, old: hunk.old_lines() };
                // A hunk without old lines belongs after the line in its header.
                let start = start.saturating_sub(usize::from(!search.old.is_empty()));
                let expected = start.saturating_add_signed(offset);
                let found = search.find(expected, *count).ok_or(PatchError::NotFound(index))?;
                offset += found.0.cast_signed() - expected.cast_signed();
                match search.old.is_empty() {
                    true => (found.0, line_ends_of_added(&file, hunks)),
                    false => found,
                }
            }
            HunkPosition::Context { headers, .. } if hunk.old_lines().is_empty() => {
                if !headers.is_empty() {
                    return Err(PatchError::NoPosition(index));
                }
                at_end.push(hunk);
                continue;
            }
            HunkPosition::Context { headers, is_at_end } => {
                let old = hunk.old_lines();
                let at = locate::find_lines(&file, done, index, &old, headers, *is_at_end)?;
                (at, LineEndMatch::Ignored)
            }
        };
        let (from, length) = (done, new.bytes.len());
        done = new.push_hunk(&file, done, hunk, at, ends);
        // A change of line ends alone is applied exactly or not at all.
        let is_lost =
            ends == LineEndMatch::Ignored && new.bytes[length..] == file[from..done].concat();
        if is_lost && hunk.has_changes() {
            return Err(PatchError::NotFound(index));
        }
    }
    for line in &file[done..] {
        new.push_line(line, FinalNewline::Specified);
    }
    for hunk in at_end {
        new.push_hunk(&file, file.len(), hunk, file.len(), LineEndMatch::Ignored);
    }
    let new = new.finish(content);
    if new == content && !hunks.is_empty() { Err(PatchError::Unchanged) } else { Ok(new) }
}

/// Returns the line ends of lines that hunks without old lines add. These are the file's, unless other hunks show that
/// the patch has the right ones, or the file has mixed line ends.
fn line_ends_of_added(file: &[&[u8]], hunks: &[Hunk]) -> LineEndMatch {
    let mut ends = file.iter().filter_map(|line| line_end(line));
    let first = ends.next();
    let is_uniform = first.is_some() && ends.all(|end| Some(end) == first);
    let is_known = hunks.iter().any(|hunk| !hunk.old_lines().is_empty());
    if is_uniform && !is_known { LineEndMatch::Ignored } else { LineEndMatch::Exact }
}

/// The new content under construction.
struct ContentBuilder {
    bytes: Vec<u8>,
    /// Whether the end of the last line is specified: it is a line of the file, or its hunk specifies it.
    final_newline: FinalNewline,
}

impl ContentBuilder {
    /// Adds a line. The previous line gets a line end if it has none.
    fn push_line(&mut self, line: &[u8], final_newline: FinalNewline) {
        self.final_newline = final_newline;
        if self.bytes.ends_with(b"\r") {
            // A marker had removed the line feed after this carriage return; together they are the line end again.
            self.bytes.push(b'\n');
        } else if !self.bytes.is_empty() && !self.bytes.ends_with(b"\n") {
            let before = self.bytes.iter().rposition(|byte| *byte == b'\n');
            let before = before.and_then(|at| line_end(&self.bytes[..=at]));
            self.bytes.extend(before.or_else(|| line_end(line)).unwrap_or(b"\n"));
        }
        self.bytes.extend(line);
    }

    /// Adds the unchanged lines before a hunk at line `at`, and the new lines of the hunk. Returns the number of file
    /// lines that have then been processed.
    fn push_hunk(
        &mut self,
        file: &[&[u8]],
        settled: usize,
        hunk: &Hunk,
        at: usize,
        ends: LineEndMatch,
    ) -> usize {
        let (mut done, mut at) = (settled, at);
        let groups = hunk.lines.chunk_by(|a, b| is_context(a) == is_context(b));
        for group in groups {
            if is_context(&group[0]) {
                at += group.len();
                continue;
            }
            // Context is copied from the file, since the next hunk may use it, too.
            for line in &file[done..at] {
                self.push_line(line, FinalNewline::Specified);
            }
            let texts = |kind| {
                let lines = group.iter().filter(move |line: &&HunkLine| line.kind == kind);
                lines.map(|line| line.text.as_str()).collect::<Vec<_>>()
            };
            let (removed, added) = (texts(LineKind::Removed), texts(LineKind::Added));
            let change = HunkChange { file, at, removed: &removed, added: &added, ends };
            for index in 0..added.len() {
                self.push_line(&change.added_line(index), hunk.final_newline);
            }
            at += removed.len();
            done = at;
        }
        done
    }

    /// Returns the content. Its end is that of the old content, unless the patch specifies the end of the last line.
    fn finish(mut self, old: &[u8]) -> Vec<u8> {
        let is_untold = self.final_newline == FinalNewline::Unspecified;
        if is_untold && !old.is_empty() && !old.ends_with(b"\n") {
            let length = without_line_end(&self.bytes).len();
            self.bytes.truncate(length);
        }
        self.bytes
    }
}

fn is_context(line: &HunkLine) -> bool {
    line.kind == LineKind::Context
}

/// A change of adjacent lines of a file.
struct HunkChange<'a> {
    file: &'a [&'a [u8]],
    /// The index of the first removed line, or of the line before which lines are added.
    at: usize,
    removed: &'a [&'a str],
    added: &'a [&'a str],
    ends: LineEndMatch,
}

impl HunkChange<'_> {
    /// Returns an added line with its line end.
    fn added_line(&self, index: usize) -> Vec<u8> {
        let text = self.added[index];
        let own = line_end(text.as_bytes());
        let has_end = match self.removed.last() {
            Some(removed) if index + 1 == self.added.len() => {
                let (claimed, wanted) = (removed.ends_with('\n'), text.ends_with('\n'));
                let is_there = self.file[self.at + self.removed.len() - 1].ends_with(b"\n");
                if claimed == wanted { is_there } else { wanted }
            }
            Some(_) | None => own.is_some(),
        };
        let end = match self.ends {
            LineEndMatch::Exact => own,
            LineEndMatch::Ignored => self.line_end_for(index).or(own),
        };
        let mut line = match self.ends {
            // A carriage return without a line feed is content.
            LineEndMatch::Exact if !has_end => text.strip_suffix('\n').unwrap_or(text).into(),
            LineEndMatch::Exact => without_line_end(text.as_bytes()).to_vec(),
            LineEndMatch::Ignored => without_any_line_end(text.as_bytes()).to_vec(),
        };
        if has_end {
            line.extend(end.unwrap_or(b"\n"));
        }
        line
    }

    /// Returns the line end of the line that an added line replaces; otherwise that of a neighbor, or of any line.
    fn line_end_for(&self, index: usize) -> Option<&'static [u8]> {
        let replaced = self.removed.len().checked_sub(1).map(|last| self.at + last.min(index));
        let before = self.at.checked_sub(1);
        let near = [replaced, before, Some(self.at)].into_iter().flatten();
        let mut near = near.filter_map(|at| self.file.get(at));
        near.find_map(|line| line_end(line))
            .or_else(|| self.file.iter().find_map(|line| line_end(line)))
    }
}

/// The range in which a hunk with a line number is searched.
struct HunkSearch<'a> {
    file: &'a [&'a [u8]],
    /// The number of processed lines; the search begins after them.
    from: usize,
    hunk: &'a Hunk,
    old: Vec<&'a str>,
}

impl HunkSearch<'_> {
    /// Returns the position of the hunk's old lines nearest to the expected one. Line ends are compared at first, and
    /// then ignored.
    fn find(&self, expected: usize, count: usize) -> Option<(usize, LineEndMatch)> {
        if self.old.is_empty() {
            // Only its line number gives the position: the hunk creates a file, or adds lines at the end of one.
            let is_there = expected <= self.file.len() && expected >= self.from;
            let is_meant = count == 0 || self.file.is_empty();
            return (is_there && is_meant).then_some((expected, LineEndMatch::Exact));
        }
        let around = self.hunk.leading_context().max(self.hunk.trailing_context());
        let ways = (0..=MAX_FUZZ.min(around))
            .flat_map(|fuzz| [(fuzz, LineEndMatch::Exact), (fuzz, LineEndMatch::Ignored)]);
        // In a patch with both kinds of line ends, line ends are significant.
        let ways = ways.filter(|(_, ends)| *ends == LineEndMatch::Exact || self.hunk.has_one_end());
        let mut ways = ways.into_iter();
        ways.find_map(|(fuzz, ends)| Some((self.find_with_fuzz(fuzz, ends, expected)?, ends)))
    }

    fn find_with_fuzz(&self, fuzz: usize, ends: LineEndMatch, expected: usize) -> Option<usize> {
        let (lead, tail) = (self.hunk.leading_context(), self.hunk.trailing_context());
        // A side with fewer context lines was cut off by the start or the end of the file.
        let left_out = |own: usize, other: usize| (fuzz + own).checked_sub(own.max(other));
        let (before, after) = (left_out(lead, tail), left_out(tail, lead));
        let fits = |at: &usize| self.fits(*at, before.unwrap_or(0), after.unwrap_or(0), ends);
        let whole = self.old.len();
        let is_first = matches!(self.hunk.position, HunkPosition::Line { start: 0 | 1, .. });
        if before.is_none() && is_first {
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

    /// Returns whether the old lines match at a position, except for the given number at each end.
    fn fits(&self, at: usize, before: usize, after: usize, ends: LineEndMatch) -> bool {
        let compared = before..self.old.len().saturating_sub(after);
        // If no line were compared, every position would match.
        !compared.is_empty()
            && compared.into_iter().all(|index| {
                let (old, line) = (self.old[index].as_bytes(), self.file.get(at + index));
                line.is_some_and(|line| match ends {
                    LineEndMatch::Exact => old == *line,
                    LineEndMatch::Ignored => {
                        without_any_line_end(old) == without_any_line_end(line)
                    }
                })
            })
    }
}

/// Returns a line without its line end, and without a carriage return before a marker.
fn without_any_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns the line end of a line; `None` if it has none.
fn line_end(line: &[u8]) -> Option<&'static [u8]> {
    match line {
        [.., b'\r', b'\n'] => Some(b"\r\n"),
        [.., b'\n'] => Some(b"\n"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::patch::tests::parse_patch;

    fn apply(content: &str, hunks: &str) -> Result<String, PatchError> {
        let sections = parse_patch(&format!("--- a/x\n+++ b/x\n{hunks}"), &|_| false).unwrap();
        let new = apply_hunks(content.as_bytes(), &sections[0].hunks)?;
        Ok(String::from_utf8(new).unwrap())
    }

    #[test]
    fn moved_hunks_are_found() {
        let hunk = "@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n";
        assert_eq!(apply("a\nb\nc\nd\n", hunk).unwrap(), "a\nb\nC\nd\n");
        assert_eq!(apply("0\n0\n0\na\nb\nc\nd\n", hunk).unwrap(), "0\n0\n0\na\nb\nC\nd\n");
        assert_eq!(apply("a\nx\n", hunk), Err(PatchError::NotFound(0)));
    }

    #[test]
    fn outer_context_may_differ() {
        let hunk = "@@ -1,5 +1,5 @@\n a\n b\n-c\n+C\n d\n e\n";
        assert_eq!(apply("x\nb\nc\nd\ny\n", hunk).unwrap(), "x\nb\nC\nd\ny\n");
    }

    /// A hunk without context after its change belongs to the end of the file, whatever differs before it.
    #[test]
    fn a_hunk_at_the_end_of_a_file_stays_there() {
        let hunk = "@@ -5,3 +5,4 @@\n a\n b\n }\n+new\n";
        assert_eq!(apply("a\nb\n}\nx\nb\n}\n", hunk).unwrap(), "a\nb\n}\nx\nb\n}\nnew\n");
        assert_eq!(apply("a\nb\n}\nx\n", hunk), Err(PatchError::NotFound(0)));
        let hunk = "@@ -1,3 +1,4 @@\n+new\n a\n b\n c\n";
        assert_eq!(apply("x\na\nb\nc\n", hunk), Err(PatchError::NotFound(0)));
        assert_eq!(apply("a\nb\nx\n", hunk).unwrap(), "new\na\nb\nx\n");
    }

    /// The lines occur in the file, so their position is the reason for the failure.
    #[test]
    fn a_hunk_away_from_its_edge_of_the_file_is_reported() {
        let known = |content: &str, hunk: &str| {
            let sections = parse_patch(&format!("--- a/x\n+++ b/x\n{hunk}"), &|_| false).unwrap();
            let why = apply_hunks(content.as_bytes(), &sections[0].hunks).err();
            let known = misplaced(content.as_bytes(), &sections[0].hunks[0]);
            assert!(known.is_none() || why == Some(PatchError::NotFound(0)), "{why:?}");
            known
        };
        let end = "@@ -5,3 +5,4 @@\n a\n b\n }\n+new\n";
        assert_eq!(known("0\r\na\r\nb\r\n}\r\nx\r\n", end), Some((Edge::End, 1)));
        assert_eq!(known("a\n b\n}\nx\n", end), None);
        let start = "@@ -1,3 +1,4 @@\n+new\n a\n b\n c\n";
        assert_eq!(known("x\na\nb\nc\n", start), Some((Edge::Start, 1)));
        assert_eq!(known("x\na\nb\n", start), None);
        // If the only context line may differ, nothing is left to compare; a removed line is still compared.
        assert_eq!(known("x\na\ny\n", "@@ -9 +9,2 @@\n a\n+b\n"), Some((Edge::End, 1)));
        assert_eq!(known("x\na\ny\n", "@@ -9,2 +9,2 @@\n x\n-a\n+b\n"), None);
    }

    #[test]
    fn line_ends_are_kept_and_can_be_changed() {
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
    fn a_patch_without_effect_is_reported() {
        assert_eq!(apply("a\n", "@@ -1 +1 @@\n-a\n+a\n"), Err(PatchError::Unchanged));
        assert_eq!(apply("a\nb\n", "@@ -1,2 +1,2 @@\n a\n b\n"), Err(PatchError::Unchanged));
    }

    #[test]
    fn a_new_file_is_created_from_a_hunk() {
        assert_eq!(apply("", "@@ -0,0 +1,2 @@\n+a\n+b\n").unwrap(), "a\nb\n");
        assert_eq!(apply("a\nb\n", "@@ -1,2 +0,0 @@\n-a\n-b\n").unwrap(), "");
        assert_eq!(apply("a\nb\n", "@@ -1,0 +2 @@\n+x\n").unwrap(), "a\nx\nb\n");
    }
}
