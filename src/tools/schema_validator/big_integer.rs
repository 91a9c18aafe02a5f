//! Integers that are too large to be represented exactly.

/// Returns the first integer in JSON with more than 64 bits. Parsing would change its value.
pub fn first_big_integer(json: &str) -> Option<&str> {
    let is_part =
        |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
    let bytes = json.as_bytes();
    let (mut at, mut is_text) = (0, false);
    while let Some(byte) = bytes.get(at) {
        let length = match byte {
            b'\\' => 2,
            b'-' | b'0'..=b'9' if !is_text => {
                let number = &json[at..];
                let end = number.bytes().position(|byte| !is_part(&byte)).unwrap_or(number.len());
                let number = &number[..end];
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
                end
            }
            byte => {
                is_text ^= *byte == b'"';
                1
            }
        };
        at += length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_integer_of_more_than_64_bits_is_found() {
        for exact in [
            "18446744073709551615",
            "[-9223372036854775808, 1e300, 0.12345678901234567890123]",
            r#"{"a\\": "\"18446744073709551616", "18446744073709551616": 7}"#,
        ] {
            assert_eq!(first_big_integer(exact), None, "{exact}");
        }
        let found = |json| first_big_integer(json);
        assert_eq!(found("[1,18446744073709551616]"), Some("18446744073709551616"));
        assert_eq!(found("{\"\u{e4}\\\"\": -9223372036854775809}"), Some("-9223372036854775809"));
    }
}
