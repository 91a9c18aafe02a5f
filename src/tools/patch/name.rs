//! Names of files in patches.

/// Returns the name in a line like `--- a/name<tab>time`; none for `/dev/null`.
pub(super) fn of_line(text: &str) -> Option<String> {
    let text = text.trim_end_matches(['\r', '\n']);
    let name = match quoted(text) {
        Some((name, _)) => name,
        None => text.split('\t').next().unwrap_or_default().trim_end().to_owned(),
    };
    (name != "/dev/null").then_some(name)
}

/// Returns the two names of `diff --git a/x b/x`; none when they cannot be told apart.
pub(super) fn of_git(text: &str) -> Option<(String, String)> {
    let text = text.trim_end_matches(['\r', '\n']);
    if let Some((first, rest)) = quoted(text) {
        let second = rest.trim_start();
        let second = quoted(second).map_or_else(|| second.to_owned(), |(name, _)| name);
        return Some((first, second));
    }
    if let Some(at) = text.find(" \"") {
        return Some((text[..at].to_owned(), quoted(&text[at + 1..])?.0));
    }
    // Names may have spaces. When both are the same but for the prefix, that tells them apart.
    let places = text.match_indices(' ').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let same = |(old, new): &(&str, &str)| plain(old) == plain(new);
    let found = places.clone().find(same).or_else(|| {
        let mut several = places.filter(|(_, new)| new.starts_with("b/"));
        several.next().filter(|_| several.next().is_none())
    });
    found.map(|(old, new)| (old.to_owned(), new.to_owned()))
}

/// Returns a name without the prefix that `git diff` puts before it.
pub(super) fn plain(name: &str) -> &str {
    match name.split_once('/') {
        Some(("a" | "b" | "i" | "w" | "c" | "o", rest)) if !rest.is_empty() => rest,
        _ => name,
    }
}

/// Reads a name in quotes, in which bytes may be written as octal numbers. Returns it and what follows.
pub(super) fn quoted(text: &str) -> Option<(String, &str)> {
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
        assert_eq!(of_line("a/x y\t2026-01-01\n").as_deref(), Some("a/x y"));
        assert_eq!(of_line("/dev/null\n"), None);
        assert_eq!(of_line("\"a/\\303\\251\\t\"\n").as_deref(), Some("a/é\t"));
        let git = |text| of_git(text).map(|(old, new)| format!("{old}|{new}"));
        assert_eq!(git("a/x b/x").as_deref(), Some("a/x|b/x"));
        assert_eq!(git("a/x b/y b/x b/y").as_deref(), Some("a/x b/y|b/x b/y"));
        assert_eq!(git("a/x b/y").as_deref(), Some("a/x|b/y"));
        assert_eq!(git("\"a/\\303\\251\" b/e").as_deref(), Some("a/é|b/e"));
        assert_eq!(git("a/e \"b/\\303\\251\"").as_deref(), Some("a/e|b/é"));
        assert_eq!(git("a/x b/y b/z"), None);
        assert_eq!((plain("a/b/c"), plain("src/a"), plain("a")), ("b/c", "src/a", "a"));
    }
}
