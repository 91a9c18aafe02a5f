//! File names in patches.

/// Returns the uninterpreted name, and the time, in a line like `--- a/name<tab>time`.
fn split_header(text: &str) -> (String, &str) {
    let text = text.trim_end_matches(['\r', '\n']);
    if let Some((name, rest)) = parse_quoted(text) {
        return (name, rest.trim_start());
    }
    let (name, time) = text.split_once('\t').unwrap_or((text, ""));
    (name.trim_end().to_owned(), time)
}

/// Returns the uninterpreted name in a line like `--- a/name<tab>time`.
pub(super) fn raw_name(text: &str) -> String {
    split_header(text).0
}

/// Returns the name in a line like `--- a/name<tab>time`. `None` for `/dev/null`, and for the time of the Unix epoch,
/// with which `diff -N` marks a missing file.
pub(super) fn parse_header_name(text: &str) -> Option<String> {
    let (name, time) = split_header(text);
    let is_absent = time.starts_with("1970-01-01 0") || time.starts_with("1969-12-31 ");
    (name != "/dev/null" && !is_absent).then_some(name)
}

/// Returns the two names in `diff --git a/x b/x`; `None` if they differ in more than their prefixes, or cannot be
/// separated.
pub(super) fn parse_git_names(text: &str) -> Option<(String, String)> {
    let text = text.trim_end_matches(['\r', '\n']);
    let is_same = |old: &str, new: &str| {
        old == new || without_prefix(old).is_some_and(|name| Some(name) == without_prefix(new))
    };
    if let Some((first, rest)) = parse_quoted(text) {
        let second = rest.trim_start();
        let second = parse_quoted(second).map_or_else(|| second.to_owned(), |(name, _)| name);
        return is_same(&first, &second).then_some((first, second));
    }
    if let Some(at) = text.find(" \"") {
        let (first, second) = (text[..at].to_owned(), parse_quoted(&text[at + 1..])?.0);
        return is_same(&first, &second).then_some((first, second));
    }
    // Names may contain spaces.
    let places = text.match_indices(' ').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let mut same = places.filter(|(old, new)| is_same(old, new));
    let (old, new) = same.next().filter(|_| same.next().is_none())?;
    Some((old.to_owned(), new.to_owned()))
}

/// Returns a name without its first component, like `patch -p1`.
pub(super) fn without_prefix(name: &str) -> Option<&str> {
    name.split_once('/')
        .map(|(_, rest)| rest)
        .filter(|rest| !rest.is_empty() && !name.starts_with('/'))
}

/// Parses a quoted name, which may contain octal escapes. Returns the name and the rest of the line.
pub(super) fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let rest = text.strip_prefix('"')?;
    let mut bytes = Vec::new();
    let mut at = 0;
    let raw = rest.as_bytes();
    loop {
        match raw.get(at)? {
            b'"' => return Some((String::from_utf8(bytes).ok()?, &rest[at + 1..])),
            b'\\' => {
                at += 1;
                let byte = match raw.get(at)? {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'0'..=b'3' => {
                        let digits = std::str::from_utf8(raw.get(at..at + 3)?).ok()?;
                        at += 2;
                        u8::from_str_radix(digits, 8).ok()?
                    }
                    other => *other,
                };
                bytes.push(byte);
            }
            byte => bytes.push(*byte),
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_every_spelling() {
        assert_eq!(parse_header_name("a/x y\t2026-01-01\n").as_deref(), Some("a/x y"));
        assert_eq!(parse_header_name("/dev/null\n"), None);
        assert_eq!(parse_header_name("\"a/\\303\\251\\t\"\n").as_deref(), Some("a/é\t"));
        let git = |text| parse_git_names(text).map(|(old, new)| format!("{old}|{new}"));
        assert_eq!(git("a/x b/x").as_deref(), Some("a/x|b/x"));
        assert_eq!(git("a/x b/y b/x b/y").as_deref(), Some("a/x b/y|b/x b/y"));
        assert_eq!(git("\"a/\\303\\251\" b/é").as_deref(), Some("a/é|b/é"));
        assert_eq!(git("a/é \"b/\\303\\251\"").as_deref(), Some("a/é|b/é"));
        assert_eq!(git("src/x dst/x").as_deref(), Some("src/x|dst/x"));
        assert_eq!(git("src/x src/x").as_deref(), Some("src/x|src/x"));
        // Names that differ are repeated in the following lines.
        for other in ["a/x b/y", "a/x b/y b/z", "a/x b/x c/x", "\"a/\\303\\251\" b/e", "x"] {
            assert_eq!(git(other), None, "{other}");
        }
        assert_eq!(
            ["a/b/c", "a", "a/", "/a/b"].map(without_prefix),
            [Some("b/c"), None, None, None]
        );
    }

    #[test]
    fn a_file_dated_at_the_epoch_is_missing() {
        assert_eq!(parse_header_name("p-1.0/x\t1970-01-01 01:00:00.000000000 +0100\n"), None);
        assert_eq!(
            parse_header_name("p-1.0/x\t2026-01-01 01:00:00.000000000 +0100\n").as_deref(),
            Some("p-1.0/x")
        );
    }
}
