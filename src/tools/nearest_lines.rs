//! Finds the lines of a file that are most similar to a text that does not occur in it.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The maximum number of shown lines.
const MAX_SHOWN_LINES: usize = 12;

/// The number of lines of a file that are searched.
const MAX_SEARCHED_LINES: usize = 20_000;

/// The number of lines of a wanted text that are compared at each position.
const MAX_COMPARED_LINES: usize = 200;

/// Describes the lines that are most similar to a wanted text.
pub(super) fn describe_nearest(content: &[u8], wanted: &str) -> String {
    let content = String::from_utf8_lossy(content);
    let lines: Vec<&str> = content.lines().take(MAX_SEARCHED_LINES).collect();
    let wanted: Vec<&str> = wanted.lines().collect();
    match nearest(&lines, &wanted) {
        Some((start, is_all)) => {
            let end = (start + wanted.len().min(MAX_SHOWN_LINES)).min(lines.len());
            let shown = lines[start..end].join("\n");
            let why = if is_all {
                "The file has the same lines with different white space"
            } else {
                "The most similar lines are these"
            };
            format!("{why} (lines {}-{end}):\n{shown}", start + 1)
        }
        None => "The file has no similar lines; read it again.".to_owned(),
    }
}

/// Returns the position of the most similar lines, and whether they differ only in white space.
fn nearest(lines: &[&str], wanted: &[&str]) -> Option<(usize, bool)> {
    let hash_all = |lines: &[&str]| lines.iter().map(|line| hash_line(line)).collect::<Vec<_>>();
    let (lines, wanted) = (hash_all(lines), hash_all(wanted));
    let compared = &wanted[..wanted.len().min(MAX_COMPARED_LINES)];
    let count = |start: usize| {
        compared.iter().zip(&lines[start..]).filter(|(a, b)| a.is_some() && a == b).count()
    };
    // Of equally good positions, the first one is used.
    let best = (0..lines.len())
        .map(|start| (count(start), start))
        .max_by_key(|(n, at)| (*n, usize::MAX - at))?;
    let (matching, start) = best;
    let needed = compared.iter().flatten().count().div_ceil(3).max(1);
    (matching >= needed).then(|| (start, lines[start..].starts_with(&wanted)))
}

/// Returns the hash of a line without its white space; `None` for a blank line.
fn hash_line(line: &str) -> Option<u64> {
    let text: String = line.split_whitespace().collect();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    (!text.is_empty()).then(|| hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::describe_nearest;

    #[test]
    fn different_white_space_is_recognised() {
        let hint = describe_nearest(b"fn a() {\n\tone();\n\ttwo();\n}\n", "    one();\n    two();");
        assert_eq!(
            hint,
            "The file has the same lines with different white space (lines 2-3):\n\tone();\n\ttwo();"
        );
    }

    #[test]
    fn similar_lines_are_shown() {
        let hint = describe_nearest(
            b"a\nlet x = 1;\nlet y = 2;\nlet z = 3;\n",
            "let x = 1;\nlet y = 7;\nlet z = 3;",
        );
        assert!(
            hint.starts_with("The most similar lines are these (lines 2-4):\nlet x = 1;"),
            "{hint}"
        );
    }

    /// Without the limit, 400 million lines would be compared.
    #[test]
    fn many_wanted_lines_are_compared_in_a_short_time() {
        let file: String = (0..20_000).map(|n| format!("line  {n}\n")).collect();
        let wanted: String = (9_000..29_000).map(|n| format!("line {n}\n")).collect();
        let hint = describe_nearest(file.as_bytes(), &wanted);
        assert!(hint.starts_with("The most similar lines are these (lines 9001-9012)"), "{hint}");
        let hint = describe_nearest(file.as_bytes(), &file.replace("  ", ""));
        assert!(hint.starts_with("The file has the same lines with different white"), "{hint}");
    }

    #[test]
    fn a_file_without_similar_lines_is_reported() {
        assert_eq!(describe_nearest(b"a\n", "b"), "The file has no similar lines; read it again.");
    }
}
