//! JSON, written piece by piece.

use serde::Serialize;

use crate::model::{ToolArguments, ToolCall};

/// Writes a value.
pub(crate) fn value(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing what has only text keys into memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// Writes a text in its quotes.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    value(out, &text);
}

/// Writes what a tool said, in its quotes; some providers refuse an answer without a word.
pub(crate) fn tool_output(out: &mut Vec<u8>, said: &str) {
    text(out, if said.trim().is_empty() { "(no output)" } else { said });
}

/// Writes a text without its quotes, for one that goes on.
pub(crate) fn unquoted(out: &mut Vec<u8>, text: &str) {
    let at = out.len();
    value(out, &text);
    out.pop();
    out.remove(at);
}

/// Writes what is JSON already.
pub(crate) fn raw(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

/// Returns the arguments of a call as they go back. Some servers read those of the history, and fail for ever on what is
/// no JSON; what was wrong with them is told in the result.
pub(crate) fn arguments(call: &ToolCall) -> &str {
    match &call.arguments {
        ToolArguments::Complete { text } => text,
        ToolArguments::Malformed { .. } | ToolArguments::Truncated { .. } => "{}",
    }
}

/// Writes the name of a tool that a model asked for. Providers refuse a history with a name that no tool could have,
/// also where their own model made it up.
pub(crate) fn tool_name(out: &mut Vec<u8>, name: &str) {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(64).map(allowed).collect();
    text(out, if name.is_empty() { "_" } else { &name });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"> ".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_text_is_escaped_with_or_without_its_quotes() {
        assert_eq!(written(|out| text(out, "a\"\n\u{1f980}")), "> \"a\\\"\\n\u{1f980}\"");
        assert_eq!(written(|out| unquoted(out, "a\"\n")), "> a\\\"\\n");
        assert_eq!(written(|out| unquoted(out, "")), "> ");
    }

    #[test]
    fn an_invalid_tool_name_is_replaced() {
        assert_eq!(written(|out| tool_name(out, "fs.read file")), "> \"fs_read_file\"");
        assert_eq!(written(|out| tool_name(out, "")), "> \"_\"");
        assert_eq!(written(|out| tool_name(out, &"x".repeat(99))).len(), 2 + 2 + 64);
    }
}
