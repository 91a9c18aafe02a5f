//! Patterns for the names of tools and variables.

/// Returns whether a pattern matches a whole text: `*` matches any text, even an empty one; `|` separates alternatives.
///
/// If a pattern matches another pattern as a text, it matches everything that the other one matches.
pub fn matches_wildcard(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|pattern| matches_pattern(pattern, text))
}

/// Returns whether a pattern without alternatives matches a whole text: `*` matches any text, even an empty one.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    // Return early: most patterns in a long list differ in the first character.
    let first = pattern.as_bytes().first();
    if first != Some(&b'*') && first != text.as_bytes().first() {
        return false;
    }
    let Some((first, pieces)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    // The piece after the last star must be the end; the pieces between stars are searched from left to right.
    let (pieces, last) = pieces.rsplit_once('*').unwrap_or(("", pieces));
    for piece in pieces.split('*') {
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
            [("*", ""), ("", ""), ("a*", "a"), ("a*c", "abc"), ("*b*", "abc"), ("a**b*c", "aXbXbc")]
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
