//! The one kind of pattern for names of tools and variables.

/// Returns whether a pattern fits a whole text: `*` in it stands for anything, also for nothing; `|` stands between
/// alternatives.
///
/// When a pattern fits another pattern as a text, it fits whatever that one fits.
pub fn matches_wildcard(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|pattern| matches_pattern(pattern, text))
}

/// Returns whether a pattern matches a whole text: `*` in it matches any text, also none.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    // What follows the last star has to be the end; what is between stars is found at its first place.
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
    fn a_star_stands_for_anything() {
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
