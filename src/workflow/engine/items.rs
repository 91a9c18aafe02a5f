//! The items of a step: the lines of a list.

/// The most items that a step may have.
pub const MAX_ITEMS: u32 = 100;

/// Returns the items of a list: its lines that are not empty, without the mark of a list at their beginning.
pub(super) fn parse_items(list: &str) -> Vec<String> {
    list.lines().map(without_mark).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Returns a line without spaces around it, and without `- `, `* ` or a number with a dot at its beginning.
fn without_mark(line: &str) -> &str {
    let line = line.trim();
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let after_mark = match digits {
        0 => line.strip_prefix(['-', '*']),
        _ => line[digits..].strip_prefix('.'),
    };
    match after_mark {
        Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => rest.trim_start(),
        Some(_) | None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_lists_are_no_part_of_items() {
        let list = "- one\r\n  * two words\n\n12. three\n-\n -4 is a number\n**bold**\n3.5\n1) x\n";
        let items = ["one", "two words", "three", "-4 is a number", "**bold**", "3.5", "1) x"];
        assert_eq!(parse_items(list), items);
        assert!(parse_items(" \n\n").is_empty());
    }
}
