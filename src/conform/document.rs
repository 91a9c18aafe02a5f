//! Recordings as one JSON value, or as JSON lines.

use serde_json::Value;

/// A recording.
pub(super) struct Document {
    /// The value of each line, or the only value.
    pub(super) lines: Vec<RecordingLine>,
    /// Whether the recording is one value, which may take several lines.
    is_whole: bool,
}

/// A line of a recording that is not blank.
pub(super) struct RecordingLine {
    /// The line number, counted from one.
    pub(super) number: usize,
    /// The JSON value of the line; `None` if the line is not valid JSON.
    pub(super) value: Option<Value>,
    /// Whether the line contains several values.
    pub(super) is_joined: bool,
    /// Whether this is the last line, which may be incomplete.
    pub(super) is_last: bool,
}

impl Document {
    /// Parses a recording.
    pub(super) fn parse(text: &str) -> Self {
        let is_first_whole =
            text.lines().next().is_some_and(|line| serde_json::from_str::<Value>(line).is_ok());
        let has_more = text.trim_end().lines().nth(1).is_some();
        if (!is_first_whole || !has_more)
            && let Ok(value) = serde_json::from_str(text)
        {
            let value = Some(value);
            let line = RecordingLine { number: 1, value, is_joined: false, is_last: true };
            return Self { lines: vec![line], is_whole: true };
        }
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let parse = |(number, line)| {
            let value = serde_json::from_str(line)
                .or_else(|_| serde_json::from_str(&without_masked_escapes(line)))
                .ok();
            let is_joined = value.is_none() && has_several_values(line);
            RecordingLine { number, value, is_joined, is_last: false }
        };
        let mut lines: Vec<_> = lines.map(parse).collect();
        if let Some(last) = lines.last_mut() {
            last.is_last = true;
        }
        Self { lines, is_whole: false }
    }

    /// Returns the value of a document that is a single value.
    pub(super) fn value(&self) -> Option<&Value> {
        self.lines.first().filter(|_| self.is_whole)?.value.as_ref()
    }
}

/// Returns a line without escapes that were cut in two by masking with stars, such as `\***` for a line end and an
/// address.
fn without_masked_escapes(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match (char, chars.clone().next()) {
            ('\\', Some('*')) => {}
            ('\\', Some(escaped)) => {
                text.extend([char, escaped]);
                chars.next();
            }
            _ => text.push(char),
        }
    }
    text
}

/// Returns whether a text is several JSON values on one line.
fn has_several_values(text: &str) -> bool {
    serde_json::Deserializer::from_str(text)
        .into_iter::<Value>()
        .try_fold(0, |count, value| value.map(|_| count + 1))
        .is_ok_and(|count| count > 1)
}

/// Returns the line of the value at a path such as `$.steps[3].message`, or of the last existing value on that path.
pub(super) fn line_of(text: &str, path: &str) -> usize {
    let mut scanner = JsonScanner { bytes: text.as_bytes(), at: 0 };
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    scanner.skip_blank();
    let mut found = scanner.at;
    while !rest.is_empty() {
        let is_index = rest.starts_with('[');
        let end = match is_index {
            true => rest.find(']').unwrap_or(rest.len()),
            false => rest[1..].find(['.', '[']).map_or(rest.len(), |end| end + 1),
        };
        let Some(part) = rest.get(1..end) else { break };
        let entered = match is_index {
            true => part.parse().is_ok_and(|index| scanner.enter_array(index)),
            false => scanner.enter_object(part),
        };
        if !entered {
            break;
        }
        found = scanner.at;
        rest = rest.get(end + usize::from(is_index)..).unwrap_or_default();
    }
    1 + text.get(..found).map_or(0, |before| before.matches('\n').count())
}

/// A position in valid JSON.
struct JsonScanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl JsonScanner<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or_default()
    }

    fn skip_blank(&mut self) {
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    /// Skips white space and separators.
    fn skip_separators(&mut self) {
        while self.peek().is_ascii_whitespace() || matches!(self.peek(), b',' | b':') {
            self.at += 1;
        }
    }

    /// Moves to an element of the array at this position. Returns whether it exists.
    fn enter_array(&mut self, index: usize) -> bool {
        if self.peek() != b'[' {
            return false;
        }
        self.at += 1;
        self.skip_separators();
        for _ in 0..index {
            self.skip_value();
            self.skip_separators();
        }
        !matches!(self.peek(), b']' | 0)
    }

    /// Moves to the value of a key of the object at this position. Returns whether it exists.
    fn enter_object(&mut self, key: &str) -> bool {
        if self.peek() != b'{' {
            return false;
        }
        self.at += 1;
        loop {
            self.skip_separators();
            if self.peek() != b'"' {
                return false;
            }
            let from = self.at;
            self.skip_value();
            let is_it = self.bytes.get(from + 1..self.at.saturating_sub(1)) == Some(key.as_bytes());
            self.skip_separators();
            if is_it {
                return true;
            }
            self.skip_value();
        }
    }

    /// Moves to the end of the value at this position.
    fn skip_value(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                0 if self.at >= self.bytes.len() => return,
                b'"' => {
                    self.at += 1;
                    while !matches!(self.peek(), b'"' | 0) {
                        self.at += 1 + usize::from(self.peek() == b'\\');
                    }
                    self.at += 1;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                byte if byte.is_ascii_whitespace() || matches!(byte, b',' | b':') => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    let is_end = |byte: u8| byte.is_ascii_whitespace() || b",:]}".contains(&byte);
                    while self.at < self.bytes.len() && !is_end(self.peek()) {
                        self.at += 1;
                    }
                }
            }
            if depth == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_line() {
        let text = "{\n  \"a\": [1, {\"x\\\"\": 2},\n    [\"]\"],\n    {\"b\": {\n      \"c\": null}}],\n  \"d\": 1.5\n}\n";
        let line = |path| line_of(text, path);
        assert_eq!([line("$"), line("$.a"), line("$.a[1]"), line("$.a[2]")], [1, 2, 2, 3]);
        assert_eq!([line("$.a[3].b"), line("$.a[3].b.c"), line("$.d")], [4, 5, 6]);
        assert_eq!([line("$.a[9]"), line("$.missing"), line("$.d.e")], [2, 1, 6]);
    }
}
