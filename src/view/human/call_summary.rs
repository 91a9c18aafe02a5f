//! Summaries of tool calls.

use serde_json::{Map, Value};

use crate::tools::{CallArguments, CallSummary, Subject, SummaryDetail, describe};
use crate::types::Language;
use crate::view::catalogue::text;
use crate::view::public_events::ToolCallStart;
use crate::view::sanitize;

/// Length limit of a command, a pattern or other arguments, in characters.
const MAX_SUMMARY: usize = 80;

/// Returns the tool of a call and the summary of its arguments, on one line.
pub(super) fn call_title(start: &ToolCallStart, lang: Language) -> String {
    let name = sanitize::line(&start.name);
    match summarize_call(&start.name, &start.arguments, lang) {
        what if what.is_empty() => name.into_owned(),
        what => format!("{name} → {what}"),
    }
}

/// Returns a one-line summary of a call's arguments, which may be empty.
pub fn summarize_call(tool: &str, arguments: &Value, lang: Language) -> String {
    let Some(fields) = arguments.as_object() else {
        return arguments.as_str().map(shorten).unwrap_or_default();
    };
    let Some(description) = describe(tool) else { return all_arguments(fields) };
    let CallSummary { subject, within, detail } = (description.summarize)(CallArguments(fields));
    let subject = match subject {
        Subject::Path(path) => sanitize::line(path).into_owned(),
        Subject::Files(files) => lang.count(files, ["file", "files"], ["archivo", "archivos"]),
        Subject::Text(text) => shorten(text),
        Subject::Quoted(text) => format!("\"{}\"", shorten(text)),
    };
    let detail = detail.map(|detail| match detail {
        SummaryDetail::Range { from, to: Some(to) } => {
            text!(lang, "lines {from}–{to}", "líneas {from}–{to}")
        }
        SummaryDetail::Range { from, to: None } => {
            text!(lang, "from line {from}", "desde la línea {from}")
        }
        SummaryDetail::Lines(lines) => lang.count(lines, ["line", "lines"], ["línea", "líneas"]),
        SummaryDetail::Change { old, new } => {
            text!(lang, "{old}→{new} lines", "{old}→{new} líneas")
        }
    });
    match (detail, within.map(shorten).filter(|folder| folder != ".")) {
        (Some(detail), _) => format!("{subject} ({detail})"),
        (None, Some(folder)) => text!(lang, "{subject} in {folder}", "{subject} en {folder}"),
        (None, None) => subject,
    }
}

/// Returns the arguments of a tool that is not built in.
fn all_arguments(arguments: &Map<String, Value>) -> String {
    let one = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}={}", sanitize::line(name), shorten(&text))
    };
    let all: Vec<String> = arguments.iter().map(one).collect();
    sanitize::truncate(&all.join(", "), MAX_SUMMARY)
}

fn shorten(text: &str) -> String {
    sanitize::truncate(&sanitize::line(text.trim()), MAX_SUMMARY)
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
