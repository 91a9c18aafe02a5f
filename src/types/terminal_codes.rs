//! Removal of terminal control codes from the texts of other programs.

/// Returns a text without escape sequences and control characters. Line ends and tabs stay; `\r\n` becomes `\n`.
pub fn strip_terminal_codes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape_sequence(&mut chars),
            // The one-character forms: a control sequence, and an operating system command.
            '\u{9b}' => skip_until_final(&mut chars),
            '\u{9d}' => skip_control_string(&mut chars),
            '\n' | '\t' => plain.push(c),
            '\r' if chars.peek() != Some(&'\n') => plain.push('\n'),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape_sequence(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => skip_until_final(chars),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_control_string(chars),
        // Some sequences have an intermediate character before their final one.
        Some(' '..='/') => {
            chars.next();
        }
        _ => {}
    }
}

fn skip_until_final(chars: &mut Chars<'_>) {
    while let Some(c) = chars.next_if(|c| matches!(c, ' '..='~')) {
        if matches!(c, '@'..='~') {
            return;
        }
    }
}

/// Skips a string up to its terminator, or to the end of the line if it has none.
fn skip_control_string(chars: &mut Chars<'_>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' if chars.peek() == Some(&'\\') => {
                chars.next();
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_titles_and_links_are_removed() {
        assert_eq!(strip_terminal_codes("\u{1b}[1;31mred\u{1b}[0m"), "red");
        assert_eq!(strip_terminal_codes("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\b"), "ab");
        assert_eq!(strip_terminal_codes("\u{9b}2Ja\u{1b}(Bb\u{1b}7c"), "abc");
    }

    #[test]
    fn line_ends_stay_and_other_controls_are_removed() {
        assert_eq!(strip_terminal_codes("a\r\nb\rc\td\u{0}\u{8}e"), "a\nb\nc\tde");
    }

    #[test]
    fn an_unterminated_sequence_ends_with_its_line() {
        assert_eq!(strip_terminal_codes("a\u{1b}]0;title\nb"), "a\nb");
        assert_eq!(strip_terminal_codes("a\u{1b}[1\nb"), "a\nb");
        assert_eq!(strip_terminal_codes("a\u{1b}"), "a");
    }
}
