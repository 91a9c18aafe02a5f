//! Halves of surrogate pairs in JSON, which are not characters by themselves.

use std::borrow::Cow;

/// The length of an escape of four digits.
const ESCAPE: usize = 6;

/// Replaces each escape of a lone half of a surrogate pair by that of U+FFFD, like decoders of invalid text.
pub(crate) fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    replace(json, |_| Some("\\ufffd".to_owned()))
}

/// Joins surrogate pairs that a server splits: the first half ends a string of an event, the second half begins a
/// string of a later event. A first half without a second one is dropped.
#[derive(Debug, Default)]
pub(crate) struct SurrogateJoiner {
    first: Option<String>,
}

impl SurrogateJoiner {
    /// Returns the next event, with complete characters only.
    pub(crate) fn join<'a>(&mut self, json: &'a str) -> Cow<'a, str> {
        replace(json, |half| {
            if half.is_first && half.ends_string {
                self.first = Some(half.escape.to_owned());
                return None;
            }
            let first = self.first.take_if(|_| !half.is_first && half.begins_string);
            Some(first.map_or_else(|| "\\ufffd".to_owned(), |first| first + half.escape))
        })
    }
}

/// An escape of half a surrogate pair, without the other half next to it.
struct LoneHalf<'a> {
    escape: &'a str,
    is_first: bool,
    begins_string: bool,
    ends_string: bool,
}

/// Replaces each lone half by the result of a function; `None` drops it.
fn replace(
    json: &str,
    mut replacement: impl FnMut(LoneHalf<'_>) -> Option<String>,
) -> Cow<'_, str> {
    let (mut fixed, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(escape) = json[at..].find('\\') {
        at += escape;
        let (unit, next) = (escaped_unit(json, at), escaped_unit(json, at + ESCAPE));
        let (length, is_lone) = match (unit, next) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => (2 * ESCAPE, false),
            (Some(0xd800..0xe000), _) => (ESCAPE, true),
            // A backslash and the escaped character.
            _ => (1 + json[at + 1..].chars().next().map_or(0, char::len_utf8), false),
        };
        if is_lone {
            let before = &json[..at];
            let half = LoneHalf {
                escape: &json[at..at + length],
                is_first: unit < Some(0xdc00),
                begins_string: before.ends_with('"') && !before.ends_with("\\\""),
                ends_string: json[at + length..].starts_with('"'),
            };
            fixed.push_str(&json[copied..at]);
            fixed.extend(replacement(half));
            copied = at + length;
        }
        at += length;
    }
    if copied == 0 {
        return json.into();
    }
    fixed.push_str(&json[copied..]);
    fixed.into()
}

/// Returns the UTF-16 unit of an escape of four digits.
fn escaped_unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_of_pairs_are_replaced() {
        for whole in
            [r#"{"a":"\ud83d\ude00 \u00e4 \\ud83d"}"#, r#""\"#, r#""\u12"#, "\"\\\u{1f600}\""]
        {
            assert!(matches!(replace_lone_surrogates(whole), Cow::Borrowed(same) if same == whole));
        }
        for (broken, fixed) in [
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\uD83D\uDE00""#, r#""\ufffd\uD83D\uDE00""#),
            (r#""a\\\ud83d b\ud83d\n""#, r#""a\\\ufffd b\ufffd\n""#),
        ] {
            assert_eq!(replace_lone_surrogates(broken), fixed);
        }
    }

    #[test]
    fn halves_of_a_pair_in_two_events_are_joined() {
        let mut joiner = SurrogateJoiner::default();
        assert_eq!(joiner.join(r#"{"a":"x\ud83d"}"#), r#"{"a":"x"}"#);
        assert_eq!(joiner.join(r#"{"type":"ping"}"#), r#"{"type":"ping"}"#);
        assert_eq!(joiner.join(r#"{"a":"\ude00y"}"#), r#"{"a":"\ud83d\ude00y"}"#);
        assert_eq!(joiner.join(r#"{"a":"\ude00y\ud83dz"}"#), r#"{"a":"\ufffdy\ufffdz"}"#);
    }
}
