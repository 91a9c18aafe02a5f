//! Unified diffs as readable lines.

use anstyle::{AnsiColor, Style};

use super::color::{BOLD, DIM, ERROR, Painter, SUCCESS};
use crate::view::sanitize;

const HUNK: Style = AnsiColor::Cyan.on_default();

/// Length limit of a line, in characters.
const MAX_LINE: usize = 400;

/// Returns the lines of a unified diff, safe for a terminal. With color, the differing words of a removed line and the
/// added line that replaces it are marked.
pub fn diff_lines(diff: &str, has_color: bool) -> Vec<String> {
    let painter = Painter { has_color };
    let lines: Vec<&str> = diff.lines().collect();
    let mut shown = Vec::with_capacity(lines.len());
    let mut at = 0;
    while at < lines.len() {
        let removed = count_with(&lines[at..], '-');
        let added = count_with(&lines[at + removed..], '+');
        if removed > 0 && removed == added {
            let (old, new) = (&lines[at..at + removed], &lines[at + removed..at + removed + added]);
            let marked: Vec<_> =
                old.iter().zip(new).map(|(old, new)| changed_parts(old, new)).collect();
            for (line, (start, end, _)) in old.iter().zip(&marked) {
                shown.push(paint_parts(painter, ERROR, line, *start, *end));
            }
            for (line, (start, _, end)) in new.iter().zip(&marked) {
                shown.push(paint_parts(painter, SUCCESS, line, *start, *end));
            }
            at += removed + added;
            continue;
        }
        let line = lines[at];
        let style = match line.as_bytes().first() {
            _ if is_header(line) => Some(BOLD),
            Some(b'+') => Some(SUCCESS),
            Some(b'-') => Some(ERROR),
            Some(b'@') => Some(HUNK),
            Some(b'\\') => Some(DIM),
            _ => None,
        };
        let text = clean(line);
        shown.push(style.map_or_else(|| text.clone(), |style| painter.paint(style, &text)));
        at += 1;
    }
    shown
}

fn is_header(line: &str) -> bool {
    line.starts_with("--- ") || line.starts_with("+++ ")
}

fn count_with(lines: &[&str], sign: char) -> usize {
    lines.iter().take_while(|line| line.starts_with(sign) && !is_header(line)).count()
}

fn clean(text: &str) -> String {
    sanitize::truncate(&sanitize::multiline(text), MAX_LINE)
}

/// Returns the byte position at which two lines begin to differ, and the start of their common end in each. Signs are
/// skipped.
fn changed_parts(old: &str, new: &str) -> (usize, usize, usize) {
    let (a, b) = (&old[1..], &new[1..]);
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8());
    let start: usize = same.sum();
    let (rest_a, rest_b) = (&a[start..], &b[start..]);
    let ends = rest_a.chars().rev().zip(rest_b.chars().rev());
    let end: usize = ends.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    (1 + start, old.len() - end, new.len() - end)
}

fn paint_parts(painter: Painter, style: Style, line: &str, start: usize, end: usize) -> String {
    // Lines without a common part are not marked, and neither are lines longer than the limit.
    let is_marked = painter.has_color
        && end > start
        && (start > 1 || end < line.len())
        && line.chars().count() <= MAX_LINE;
    if !is_marked {
        return painter.paint(style, &clean(line));
    }
    let part = |text: &str| sanitize::multiline(text).into_owned();
    [
        painter.paint(style, &part(&line[..start])),
        painter.paint(style.invert(), &part(&line[start..end])),
        painter.paint(style, &part(&line[end..])),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_the_lines_stay_as_they_are() {
        let diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-let a = 1;\n+let a = 2;\n";
        assert_eq!(diff_lines(diff, false), diff.lines().collect::<Vec<_>>());
        assert_eq!(diff_lines("+a\u{1b}[2J", false), ["+a\\u{1b}[2J"]);
    }

    #[test]
    fn words_that_differ_are_marked() {
        let lines = diff_lines("-let ä = 1;\n+let ä = 22;\n", true);
        let marked = |text: &str| format!("\u{1b}[7m\u{1b}[32m{text}\u{1b}[0m");
        assert!(lines[1].contains(&marked("22")), "{lines:?}");
        assert!(!diff_lines("-a\n+b\n", true)[0].contains("\u{1b}[7m"));
    }
}
