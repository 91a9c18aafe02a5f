//! Summaries of tool calls.

use serde_json::{Map, Value};

use crate::model::Language;
use crate::view::catalogue::LogMessage;
use crate::view::sanitize;

/// The maximum length of a command, a pattern or other arguments, in characters.
const MAX_SUMMARY: usize = 80;

/// Returns a one-line summary of a call's arguments; may be empty.
pub fn summarize_call(tool: &str, arguments: &Value, lang: Language) -> String {
    let Some(fields) = arguments.as_object() else {
        return arguments.as_str().map(shorten).unwrap_or_default();
    };
    let fields = CallArguments(fields);
    match tool {
        "read_file" => with_note(fields.path(), fields.range(), lang),
        "write_file" => with_note(fields.path(), fields.lines("content"), lang),
        "edit_file" => with_note(fields.path(), fields.change(), lang),
        "apply_patch" => fields.patch(lang),
        "delete_file" => fields.path(),
        "list_files" => match fields.text("pattern") {
            Some(pattern) => search_summary(&pattern, fields.text("path"), lang),
            None => fields.path(),
        },
        "search_code" => search_summary(&quote(fields.text("pattern")), fields.text("path"), lang),
        "grep" => search_summary(&quote(fields.text("text")), fields.text("path"), lang),
        "find_files" => {
            search_summary(&fields.text("pattern").unwrap_or_default(), fields.text("path"), lang)
        }
        "run_command" => fields.text("command").unwrap_or_default(),
        "read_output" => fields.text("call_id").unwrap_or_default(),
        _ => fields.all(),
    }
}

/// The arguments of a call.
struct CallArguments<'a>(&'a Map<String, Value>);

impl CallArguments<'_> {
    fn raw(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// Returns an argument as one short line.
    fn text(&self, name: &str) -> Option<String> {
        self.raw(name).map(shorten)
    }

    /// Paths are not shortened.
    fn path(&self) -> String {
        sanitize::line(self.raw("path").unwrap_or(".")).into_owned()
    }

    fn range(&self) -> Option<LogMessage<'static>> {
        let number = |name| self.0.get(name).and_then(Value::as_u64);
        let (offset, limit) = (number("offset"), number("limit"));
        let from = offset.unwrap_or(1).max(1);
        let to = limit.map(|limit| from.saturating_add(limit).saturating_sub(1));
        (offset.is_some() || limit.is_some()).then_some(LogMessage::Range { from, to })
    }

    fn lines(&self, name: &str) -> Option<LogMessage<'static>> {
        Some(LogMessage::Lines { lines: self.raw(name)?.lines().count() })
    }

    fn change(&self) -> Option<LogMessage<'static>> {
        let lines = |name| self.raw(name).map(|text| text.lines().count());
        Some(LogMessage::Change { old: lines("old_str")?, new: lines("new_str")? })
    }

    /// Returns the file of a patch, or the number of files.
    fn patch(&self, lang: Language) -> String {
        let headers = self.raw("patch").unwrap_or_default().lines().filter_map(|line| {
            let begins = [
                "+++ ",
                "--- ",
                "*** Add File: ",
                "*** Update File: ",
                "*** Delete File: ",
                "*** Move to: ",
            ];
            let path = begins.iter().find_map(|begin| line.strip_prefix(begin))?;
            let path = path.split('\t').next().unwrap_or(path).trim();
            let path = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path);
            (path != "/dev/null").then_some(path)
        });
        let mut files: Vec<&str> = headers.collect();
        files.sort_unstable();
        files.dedup();
        match files.as_slice() {
            [] => self.path(),
            [only] => sanitize::line(only).into_owned(),
            files => LogMessage::Files { files: files.len() }.render(lang),
        }
    }

    /// Returns the arguments of an unknown tool.
    fn all(&self) -> String {
        let one = |(name, value): (&String, &Value)| match value {
            Value::String(text) => format!("{}={}", sanitize::line(name), shorten(text)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => {
                format!("{}={}", sanitize::line(name), shorten(&value.to_string()))
            }
        };
        let all: Vec<String> = self.0.iter().map(one).collect();
        sanitize::truncate(&all.join(", "), MAX_SUMMARY)
    }
}

fn shorten(text: &str) -> String {
    sanitize::truncate(&sanitize::line(text.trim()), MAX_SUMMARY)
}

fn quote(text: Option<String>) -> String {
    format!("\"{}\"", text.unwrap_or_default())
}

fn with_note(path: String, note: Option<LogMessage<'_>>, lang: Language) -> String {
    match note {
        Some(note) => format!("{path} ({})", note.render(lang)),
        None => path,
    }
}

fn search_summary(what: &str, place: Option<String>, lang: Language) -> String {
    match place.filter(|place| place != ".") {
        Some(place) => LogMessage::Search { pattern: what, path: &place }.render(lang),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary_text(tool: &str, arguments: &Value) -> String {
        summarize_call(tool, arguments, Language::En)
    }

    #[test]
    fn each_tool_has_its_own_summary() {
        let edit =
            json!({ "path": "src/main.py", "old_str": "a\nb\nc", "new_str": "a\nb\nc\nd\ne" });
        assert_eq!(summary_text("edit_file", &edit), "src/main.py (3→5 lines)");
        assert_eq!(summarize_call("edit_file", &edit, Language::Es), "src/main.py (3→5 líneas)");
        let write = json!({ "path": "a.txt", "content": "one\n" });
        assert_eq!(summary_text("write_file", &write), "a.txt (1 line)");
        let read = json!({ "path": "a.txt", "offset": 10, "limit": 20 });
        assert_eq!(summary_text("read_file", &read), "a.txt (lines 10–29)");
        assert_eq!(summary_text("read_file", &json!({ "path": "a.txt" })), "a.txt");
        assert_eq!(summary_text("list_files", &json!({ "path": "src", "recursive": true })), "src");
        assert_eq!(
            summary_text("search_code", &json!({ "pattern": "fn \\w+", "path": "src" })),
            "\"fn \\w+\" in src"
        );
        assert_eq!(summary_text("grep", &json!({ "text": "TODO" })), "\"TODO\"");
        assert_eq!(
            summary_text("run_command", &json!({ "command": "cargo test\necho" })),
            "cargo test\\necho"
        );
        assert_eq!(summary_text("mcp_git_log", &json!({ "n": 3, "all": true })), "n=3, all=true");
    }

    #[test]
    fn a_patch_is_its_file_or_how_many_there_are() {
        let patch = |patch: &str| summary_text("apply_patch", &json!({ "patch": patch }));
        assert_eq!(patch("--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-a\n+b\n"), "x.rs");
        assert_eq!(patch("--- /dev/null\n+++ b/x.rs\n--- a/y.rs\n+++ b/y.rs\n"), "2 files");
    }

    #[test]
    fn arguments_that_are_no_object_or_hostile_stay_one_harmless_line() {
        assert_eq!(
            summary_text("edit_file", &json!("{\"path\": \"a\u{1b}[2J\n")),
            "{\"path\": \"a\\u{1b}[2J"
        );
        let long = json!({ "command": "x".repeat(500) });
        assert_eq!(summary_text("run_command", &long).chars().count(), MAX_SUMMARY);
        assert_eq!(summary_text("read_file", &json!({ "path": "a\nb" })), "a\\nb");
    }
}
