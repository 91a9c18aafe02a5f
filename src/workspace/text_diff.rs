//! Unified diffs of file contents.

use std::borrow::Cow;

use super::is_binary;

/// The maximum size of contents that are compared line by line, in bytes.
const MAX_COMPARED_BYTES: usize = 1 << 20;

/// The number of unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// Returns the hunks of a unified diff. Of larger contents, the common beginning and end are left out first; if more than
/// [`MAX_COMPARED_BYTES`] are left, one hunk replaces them.
pub(super) fn hunks(old: &[u8], new: &[u8]) -> Vec<u8> {
    let is_large = |old: &[u8], new: &[u8]| old.len().max(new.len()) > MAX_COMPARED_BYTES;
    if !is_large(old, new) {
        return compared_hunks(old, new, 0);
    }
    let (old, new, skipped) = changed_part(old, new);
    if is_large(old, new) {
        whole_hunk(old, new, skipped)
    } else {
        compared_hunks(old, new, skipped)
    }
}

/// Returns the hunks of texts before which this many lines are left out.
fn compared_hunks(old: &[u8], new: &[u8], skipped: usize) -> Vec<u8> {
    let diff = flickzeug::DiffOptions::new()
        .set_context_len(CONTEXT_LINES)
        .create_patch_bytes(old, new)
        .to_bytes();
    let start = diff.windows(3).position(|bytes| bytes == b"@@ ").unwrap_or(diff.len());
    if skipped == 0 {
        return diff[start..].to_vec();
    }
    // No line of a text begins with `@`: a sign is before it.
    let lines = diff[start..].split_inclusive(|byte| *byte == b'\n');
    let shifted = lines.map(|line| match line.starts_with(b"@@ ") {
        true => Cow::Owned(shift_header(&String::from_utf8_lossy(line), skipped).into_bytes()),
        false => Cow::Borrowed(line),
    });
    shifted.collect::<Vec<_>>().concat()
}

/// Adds to both line numbers in `@@ -1,2 +3,4 @@`.
fn shift_header(header: &str, by: usize) -> String {
    let shift = |word: &str| {
        let Some(sign) = word.get(..1).filter(|sign| ["-", "+"].contains(sign)) else {
            return word.to_owned();
        };
        let (line, count) = word[1..].split_once(',').unwrap_or((&word[1..], ""));
        let comma = if count.is_empty() { "" } else { "," };
        let line = line.parse::<usize>().map_or(0, |line| line + by);
        format!("{sign}{line}{comma}{count}")
    };
    header.split(' ').map(shift).collect::<Vec<_>>().join(" ")
}

/// Returns the numbers of equal lines at the beginning and at the end; no line counts twice.
pub fn common_ends(old: &[&[u8]], new: &[&[u8]]) -> (usize, usize) {
    let before = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let ends = old[before..].iter().rev().zip(new[before..].iter().rev());
    (before, ends.take_while(|(a, b)| a == b).count())
}

/// Returns the parts of two texts without the lines that both begin and end with, except for the lines of context, and the
/// number of lines before them.
fn changed_part<'a>(old: &'a [u8], new: &'a [u8]) -> (&'a [u8], &'a [u8], usize) {
    let lines = |text: &'a [u8]| text.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
    let (old_lines, new_lines) = (lines(old), lines(new));
    let (before, after) = common_ends(&old_lines, &new_lines);
    let skipped = before.saturating_sub(CONTEXT_LINES);
    let bytes = |lines: &[&[u8]]| lines.iter().map(|line| line.len()).sum::<usize>();
    let begin = bytes(&old_lines[..skipped]);
    let end = bytes(&old_lines[old_lines.len() - after.saturating_sub(CONTEXT_LINES)..]);
    (&old[begin..old.len() - end], &new[begin..new.len() - end], skipped)
}

/// Returns the change of a file as a unified diff, for display. `None` stands for a missing file.
pub fn unified_diff(path: &str, old: Option<&[u8]>, new: Option<&[u8]>) -> String {
    let name = |side: Option<&[u8]>, prefix: &str| match side {
        Some(_) => format!("{prefix}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let head = format!("--- {}\n+++ {}\n", name(old, "a"), name(new, "b"));
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    if is_binary(old) || is_binary(new) {
        return format!("{head}Binary content: {} → {} bytes\n", old.len(), new.len());
    }
    let hunks = hunks(old, new);
    let end = if hunks.is_empty() || hunks.ends_with(b"\n") { "" } else { "\n" };
    format!("{head}{}{end}", String::from_utf8_lossy(&hunks))
}

/// Returns a hunk that replaces a whole text, before which this many lines are left out.
fn whole_hunk(old: &[u8], new: &[u8], skipped: usize) -> Vec<u8> {
    let lines = |text: &[u8]| text.split_inclusive(|byte| *byte == b'\n').count();
    let range = |count: usize| format!("{},{count}", skipped + usize::from(count > 0));
    let mut out = format!("@@ -{} +{} @@\n", range(lines(old)), range(lines(new))).into_bytes();
    for (sign, text) in [(b'-', old), (b'+', new)] {
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            out.push(sign);
            out.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                out.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> Vec<String> {
        (1..=count).map(|line| format!("line {line}\n")).collect()
    }

    #[test]
    fn a_small_change_of_a_large_file_is_a_small_diff() {
        let old = numbered(200_000);
        let mut new = old.clone();
        new[99_999] = "changed\n".to_owned();
        new.insert(100_010, "added\n".to_owned());
        let [old, new] = [old.concat(), new.concat()];
        assert!(old.len() > 2 * MAX_COMPARED_BYTES);
        let diff = String::from_utf8(hunks(old.as_bytes(), new.as_bytes())).unwrap();
        let headers: Vec<_> = diff.lines().filter(|line| line.starts_with('@')).collect();
        let expected = ["@@ -99997,7 +99997,7 @@", "@@ -100008,6 +100008,7 @@"];
        assert_eq!((headers, diff.lines().count()), (expected.to_vec(), 17), "{diff}");
        assert!(diff.contains("-line 100000\n+changed\n"), "{diff}");
    }

    #[test]
    fn a_large_change_is_one_hunk() {
        let old = numbered(200_000).concat();
        let new = old.replace("line", "row").replacen("row 1\n", "line 1\n", 1);
        let diff = String::from_utf8(hunks(old.as_bytes(), new.as_bytes())).unwrap();
        assert!(diff.starts_with("@@ -1,200000 +1,200000 @@\n-line 1\n"));
        let end = format!("{old}same\n");
        let added = String::from_utf8(hunks(old.as_bytes(), end.as_bytes())).unwrap();
        let context = "@@ -199998,3 +199998,4 @@\n line 199998\n";
        assert!(added.starts_with(context) && added.ends_with("+same\n"), "{added}");
    }

    #[test]
    fn files_are_created_changed_and_deleted() {
        let diff = |old: Option<&str>, new: Option<&str>| {
            unified_diff("d/a", old.map(str::as_bytes), new.map(str::as_bytes))
        };
        assert_eq!(diff(None, Some("x\n")), "--- /dev/null\n+++ b/d/a\n@@ -0,0 +1 @@\n+x\n");
        assert_eq!(
            diff(Some("1\n2\n"), Some("1\n3")),
            "--- a/d/a\n+++ b/d/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n\\ No newline at end of file\n"
        );
        assert_eq!(diff(Some("x\n"), None), "--- a/d/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
        assert!(diff(Some("a"), Some("\0")).contains("Binary content: 1 → 1 bytes"));
    }
}
