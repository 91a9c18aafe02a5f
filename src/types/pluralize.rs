//! Numbers with their nouns, in English.

/// Returns a number with its noun, in the singular or the plural. Numbers beyond 64 bits are shown as the largest one.
pub fn pluralize(number: impl TryInto<u64>, one: &str, many: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
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
}
