//! Patterns in which `*` stands for any text.

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
