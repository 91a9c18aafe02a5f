//! Patterns in which `*` stands for any text.

use globset::{GlobBuilder, GlobMatcher};

/// Returns whether a text is what a pattern says; `*` stands for any text, also none.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        // The earliest place leaves the most for the pieces that follow.
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

/// The longest pattern for names of files.
const MAX_GLOB_LENGTH: usize = 1_000;

/// Braces in each other that a pattern for names of files may have.
const MAX_BRACE_DEPTH: usize = 8;

/// Reads a pattern for names of files, in which `*` does not stand for `/`.
///
/// # Errors
///
/// Fails with what is wrong with it. One that is nested without end would end the process.
pub(super) fn compile_glob(pattern: &str) -> Result<GlobMatcher, String> {
    let mut depth = 0_usize;
    for char in pattern.chars() {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_BRACE_DEPTH || pattern.len() > MAX_GLOB_LENGTH {
            return Err("it is too long, or its braces are nested too deeply".to_owned());
        }
    }
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in [
            ("a", "a"),
            ("*", ""),
            ("mcp_*", "mcp_x_y"),
            ("a*b*c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("git *", "git status -s"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("", "a"), ("a*a", "a"), ("a*b*c", "acb"), ("git *", "git")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
