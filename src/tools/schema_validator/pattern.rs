//! Regular expressions of schemas.

use regex_automata::meta::Regex;

/// Compiles a pattern in the syntax of ECMA-262. `None` if it is invalid, or needs more than linear time, as
/// look-around assertions and back-references do.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    Regex::new(&translate(pattern)).ok()
}

/// Returns a pattern in the syntax of Rust. Digit and word classes are those of ASCII, and a character class may
/// contain brackets.
fn translate(pattern: &str) -> String {
    let mut result = String::with_capacity(pattern.len());
    let (mut in_class, mut chars) = (false, pattern.chars());
    while let Some(char) = chars.next() {
        match (char, in_class) {
            ('\\', _) => match chars.next() {
                Some('d') => result.push_str("[0-9]"),
                Some('D') => result.push_str("[^0-9]"),
                Some('w') => result.push_str("[A-Za-z0-9_]"),
                Some('W') => result.push_str("[^A-Za-z0-9_]"),
                Some('c') => {
                    // A control character, given by its name.
                    let name = chars.next().unwrap_or('@');
                    result.push_str(&format!("\\x{:02x}", name as u32 % 32));
                }
                Some(escaped) => result.extend(['\\', escaped]),
                None => result.push('\\'),
            },
            ('[', false) => {
                in_class = true;
                result.push('[');
            }
            (']', true) => {
                in_class = false;
                result.push(']');
            }
            ('[' | '&' | '~', true) => result.extend(['\\', char]),
            _ => result.push(char),
        }
    }
    result
}
