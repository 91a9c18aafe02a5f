//! Texts for users.

/// Returns a number with its noun, in the singular or the plural. Numbers beyond 64 bits are shown as the largest one.
pub fn pluralize(number: impl TryInto<u64>, one: &str, many: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    }
}

/// Returns the first line of a text, shortened to this many characters. `…` stands for the rest of the text.
pub(crate) fn first_line(text: &str, most: usize) -> String {
    let text = text.trim();
    let first: String = text.lines().next().unwrap_or_default().chars().take(most).collect();
    let more = if first.len() < text.len() { "…" } else { "" };
    first + more
}

/// Shortens a text to this many characters, followed by `…`.
#[cfg(feature = "runner")]
pub(crate) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!(
            [0_u32, 1, 2].map(|n| pluralize(n, "line", "lines")),
            ["0 lines", "1 line", "2 lines"]
        );
    }

    #[test]
    fn the_first_line_stands_for_a_text() {
        let texts = ["ab", " ab\n", "abc", "ab\nc", "", "\n"];
        assert_eq!(texts.map(|text| first_line(text, 2)), ["ab", "ab", "ab…", "ab…", "", ""]);
    }

    #[test]
    #[cfg(feature = "runner")]
    fn a_text_is_cut_between_characters() {
        assert_eq!(["äö", "äöü", ""].map(|text| shorten(text, 2)), ["äö", "äö…", ""]);
    }
}
