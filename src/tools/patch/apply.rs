//! What hunks make of a content.

use std::fmt::Write as _;

use flickzeug::{ApplyConfig, Diff, FuzzyConfig};

use super::hunk::{Hunk, Line};

/// Why hunks don't make anything of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) enum NotApplied {
    /// The lines of this hunk are not there; counted from zero.
    Hunk(usize),
    /// The content stays what it is.
    Unchanged,
}

/// Returns what hunks make of a content.
///
/// First they are taken at their word, line ends included, wherever their lines stand. Then as `patch` does: with up to
/// two lines at their edges that are different, and with the line ends of the file.
pub(in crate::tools) fn applied(content: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>, NotApplied> {
    let new = match exactly(content, hunks) {
        Ok(new) => new,
        Err(hunk) => loosely(content, hunks).ok_or(NotApplied::Hunk(hunk))?,
    };
    if new == content && !hunks.is_empty() { Err(NotApplied::Unchanged) } else { Ok(new) }
}

/// Applies hunks that fit line by line; fails with the first one that does not.
fn exactly(content: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>, usize> {
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let mut new = Vec::with_capacity(content.len());
    let (mut done, mut offset) = (0, 0_isize);
    for (index, hunk) in hunks.iter().enumerate() {
        let old = hunk.before();
        // A hunk without old lines stands behind the line that its header names.
        let expected =
            if old.is_empty() { hunk.old_start } else { hunk.old_start.saturating_sub(1) };
        let expected = expected.saturating_add_signed(offset);
        let at = place(&lines, done, expected, hunk, &old).ok_or(index)?;
        offset += at.cast_signed() - expected.cast_signed();
        new.extend(lines[done..at].concat());
        for line in hunk.after() {
            new.extend(line.as_bytes());
        }
        done = at + old.len();
    }
    new.extend(lines[done..].concat());
    Ok(new)
}

/// Returns the place nearest to the expected one where the old lines of a hunk stand.
fn place(
    lines: &[&[u8]],
    from: usize,
    expected: usize,
    hunk: &Hunk,
    old: &[&str],
) -> Option<usize> {
    let last = lines.len().checked_sub(old.len()).filter(|last| *last >= from)?;
    let fits = |at: usize| {
        let all = old.iter().zip(&lines[at..]).all(|(old, line)| old.as_bytes() == *line);
        // A hunk that begins with the first line, or ends with the last one, has less around it that stays.
        let begins = hunk.old_start > 1 || hunk.lead() >= hunk.tail() || at == 0;
        let ends = hunk.tail() >= hunk.lead() || at == last;
        all && begins && ends
    };
    if old.is_empty() {
        // Nothing says where it belongs but its number; a new file, or an end.
        return (expected <= lines.len() && expected >= from).then_some(expected);
    }
    let expected = expected.clamp(from, last);
    let widest = (expected - from).max(last - expected);
    (0..=widest).find_map(|distance| {
        let before = expected.checked_sub(distance).filter(|at| *at >= from);
        let after = Some(expected + distance).filter(|at| *at <= last);
        after.filter(|at| fits(*at)).or_else(|| before.filter(|at| fits(*at)))
    })
}

/// Applies hunks as `patch` does.
fn loosely(content: &[u8], hunks: &[Hunk]) -> Option<Vec<u8>> {
    let text = written(hunks);
    let diff = Diff::from_bytes(text.as_bytes()).ok()?;
    // Lines that are only similar are not the ones that were meant.
    let fuzzy_config = FuzzyConfig { similarity_threshold: 1.0, ..FuzzyConfig::default() };
    let config = ApplyConfig { fuzzy_config, ..ApplyConfig::default() };
    flickzeug::apply_bytes_with_config(content, &diff, &config).ok().map(|(new, _)| new)
}

/// Writes hunks with numbers that fit.
fn written(hunks: &[Hunk]) -> String {
    let mut text = String::from("--- a\n+++ b\n");
    let mut shift = 0_isize;
    for hunk in hunks {
        let (old, new) = (hunk.before().len(), hunk.after().len());
        let start = hunk.old_start.saturating_add_signed(shift);
        let _ = writeln!(text, "@@ -{},{old} +{start},{new} @@", hunk.old_start);
        shift += new.cast_signed() - old.cast_signed();
        for line in &hunk.lines {
            let (mark, line) = match line {
                Line::Same(line) => (' ', line),
                Line::Removed(line) => ('-', line),
                Line::Added(line) => ('+', line),
            };
            text.push(mark);
            text += line;
            if !line.ends_with('\n') {
                text += "\n\\ No newline at end of file\n";
            }
        }
    }
    text
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
