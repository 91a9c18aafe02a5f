//! Finds the lines of a file that are most similar to a text that was not found in it.

/// The maximum number of lines that are shown.
const MAX_SHOWN_LINES: usize = 12;

/// The part of a file that is searched.
const MAX_SEARCHED_LINES: usize = 20_000;

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
    let same = |a: &str, b: &str| without_whitespace(a).eq(without_whitespace(b));
    let count = |start: usize| {
        wanted
            .iter()
            .zip(&lines[start..])
            .filter(|(a, b)| !a.trim().is_empty() && same(a, b))
            .count()
    };
    let blank = wanted.iter().filter(|line| line.trim().is_empty()).count();
    // The first of equally good positions.
    let best = (0..lines.len())
        .map(|start| (count(start), start))
        .max_by_key(|(n, at)| (*n, usize::MAX - at))?;
    let (matching, start) = best;
    let needed = (wanted.len() - blank).div_ceil(3).max(1);
    let there = &lines[start..];
    let is_all = wanted.len() <= there.len() && wanted.iter().zip(there).all(|(a, b)| same(a, b));
    (matching >= needed).then_some((start, is_all))
}

fn without_whitespace(line: &str) -> impl Iterator<Item = char> + '_ {
    line.chars().filter(|char| !char.is_whitespace())
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

    #[test]
    fn a_file_without_similar_lines_is_reported() {
        assert_eq!(describe_nearest(b"a\n", "b"), "The file has no similar lines; read it again.");
    }
}
