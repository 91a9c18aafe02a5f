//! The patterns for names of tools and variables.

/// Returns whether a pattern matches a whole text: `*` matches any text, also an empty one; `|` separates alternatives.
///
/// If a pattern matches another pattern as a text, it matches everything that the other one matches.
pub fn matches_wildcard(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|pattern| matches_pattern(pattern, text))
}

/// Returns whether a pattern matches a whole text: `*` in it matches any text, also none.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    // The piece after the last star must be the end; the pieces between stars are searched from left to right.
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, text) in
            [("*", ""), ("a*", "a"), ("a*c", "abc"), ("*b*", "abc"), ("a*b*c", "aXbXbc")]
        {
            assert!(matches_wildcard(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("a", "ab"), ("a*c", "ab"), ("ab*b", "ab"), ("*b", "abc")]
        {
            assert!(!matches_wildcard(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn one_of_several_patterns_is_enough() {
        assert!(matches_wildcard("edit_file|write_*", "write_file"));
        assert!(!matches_wildcard("edit_file|write_*", "read_file"));
    }
}
