//! Content of tool calls for a client: title, kind, locations, and the changes of files.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    Diff, ToolCallContent, ToolCallLocation, ToolCallUpdateFields, ToolKind,
};
use serde_json::{Map, Value};

use crate::policy::CallKind;
use crate::tools::{CallArguments, TargetKind, describe};
use crate::types::{FileChange, FilePath, Language};
use crate::view::human::call_summary::summarize_call;
use crate::view::report::code_fence;
use crate::view::sanitize;
use crate::workspace::{RelPath, WorkspaceRoot};

/// Size limit, in bytes, of a file whose changes are shown.
const MAX_SHOWN_FILE: u64 = 512 << 10;

/// Size limit, in bytes, of the result text sent to the client; a longer text is shortened.
const MAX_SHOWN_RESULT: usize = 64 << 10;

/// A file as it was before a call. The path is relative to the workspace; the text is `None` if there was no file.
pub(super) struct OldFile {
    pub(super) path: String,
    pub(super) text: Option<String>,
}

/// Returns the fields that show a call before it runs.
pub(super) fn call_fields(
    root: &WorkspaceRoot,
    tool: &str,
    arguments: &Value,
) -> ToolCallUpdateFields {
    let kind = call_kind(tool, arguments);
    let summary = summarize_call(tool, arguments, Language::En);
    let title = match kind {
        // The user decides about the command, so it is shown in full.
        ToolKind::Execute => format!("`{}`", sanitize::line(command(arguments))),
        _ if summary.is_empty() => tool.to_owned(),
        _ => format!("{tool} → {summary}"),
    };
    let mut fields = ToolCallUpdateFields::new()
        .title(title)
        .name(tool.to_owned())
        .kind(kind)
        .raw_input(arguments.clone())
        .locations(locations(root, tool, arguments));
    let content = planned_content(root, tool, arguments);
    if !content.is_empty() {
        fields = fields.content(content);
    }
    fields
}

/// Returns the present state of the files that a call is going to change.
pub(super) fn old_files(root: &WorkspaceRoot, tool: &str, arguments: &Value) -> Vec<OldFile> {
    let paths = written_paths(tool, arguments).into_iter();
    let read = |path: String| Some(OldFile { text: read_text(root, &path)?, path });
    paths.filter_map(read).collect()
}

/// Returns the content of a completed call: its text, and the changes of files.
pub(super) fn result_content(
    root: &WorkspaceRoot,
    text: &str,
    old: &[OldFile],
    changes: &[FileChange],
) -> Vec<ToolCallContent> {
    let diff = |change: &FileChange| {
        let old = old.iter().find(|file| {
            root.resolve(&file.path).is_ok_and(|path| FilePath::from(&path) == change.path)
        })?;
        let shown = change.path.to_string();
        let new = read_text(root, &shown)?;
        Some(diff_of(root, &shown, old.text.clone(), new.unwrap_or_default()))
    };
    let mut content: Vec<ToolCallContent> = changes.iter().filter_map(diff).collect();
    // The diffs show a complete change; the text is only needed when one of them is missing.
    if content.is_empty() || content.len() < changes.len() {
        content.push(bounded(text).into());
    }
    content
}

/// Shortens a text to [`MAX_SHOWN_RESULT`] bytes, keeping its beginning and its end.
pub(super) fn bounded(text: &str) -> String {
    if text.len() <= MAX_SHOWN_RESULT {
        return text.to_owned();
    }
    let boundary = |from: usize| (from..text.len()).find(|at| text.is_char_boundary(*at));
    let head = boundary(MAX_SHOWN_RESULT / 2).unwrap_or_default();
    let tail = boundary(text.len() - MAX_SHOWN_RESULT / 2).unwrap_or(text.len());
    format!("{}\n[... {} bytes omitted ...]\n{}", &text[..head], tail - head, &text[tail..])
}

fn call_kind(tool: &str, arguments: &Value) -> ToolKind {
    let Some(description) = describe(tool) else {
        return if is_delegation(tool) { ToolKind::Think } else { ToolKind::Other };
    };
    match (description.kind(), description.target) {
        (CallKind::Reads, TargetKind::Search) => ToolKind::Search,
        (CallKind::Reads, _) => ToolKind::Read,
        (CallKind::Changes, _) if is_deletion(arguments) => ToolKind::Delete,
        (CallKind::Changes, _) => ToolKind::Edit,
        (CallKind::Command, _) => ToolKind::Execute,
        (CallKind::External, _) => ToolKind::Other,
        (CallKind::Delegates, _) => ToolKind::Think,
    }
}

fn is_delegation(tool: &str) -> bool {
    tool == crate::app::DISPATCH_TOOL
}

/// Returns whether a call deletes its file: `path` is the only argument.
fn is_deletion(arguments: &Value) -> bool {
    arguments.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key("path"))
}

fn command(arguments: &Value) -> &str {
    arguments["command"].as_str().unwrap_or_default()
}

/// Returns the locations of the files that the arguments of a call name.
fn locations(root: &WorkspaceRoot, tool: &str, arguments: &Value) -> Vec<ToolCallLocation> {
    let line = arguments["offset"].as_u64().and_then(|line| u32::try_from(line).ok());
    let paths = match describe(tool).map(|tool| tool.target) {
        Some(TargetKind::Write) => written_paths(tool, arguments),
        Some(TargetKind::Read) => {
            arguments["path"].as_str().map(str::to_owned).into_iter().collect()
        }
        Some(
            TargetKind::Tool
            | TargetKind::Skill
            | TargetKind::Search
            | TargetKind::Command
            | TargetKind::Running
            | TargetKind::Input,
        )
        | None => Vec::new(),
    };
    let location = |path: String| {
        let path = root.resolve(&path).ok()?;
        Some(ToolCallLocation::new(absolute(root, &path)).line(line))
    };
    paths.into_iter().filter_map(location).collect()
}

/// Returns the absolute path of a file for a client. A path that is not UTF-8 is escaped, since JSON can't contain it.
fn absolute(root: &WorkspaceRoot, path: &RelPath) -> PathBuf {
    let inside = path.as_path();
    root.given_path().join(inside.to_str().map_or_else(|| path.to_string(), str::to_owned))
}

/// Returns the paths of the files that a call writes, as given in its arguments.
fn written_paths(tool: &str, arguments: &Value) -> Vec<String> {
    if describe(tool).is_none_or(|tool| tool.target != TargetKind::Write) {
        return Vec::new();
    }
    if let Some(path) = arguments["path"].as_str() {
        return vec![path.to_owned()];
    }
    let Some(patch) = arguments["patch"].as_str() else { return Vec::new() };
    let mut paths: Vec<String> = Vec::new();
    for line in patch.lines() {
        let prefixes = [
            "--- ",
            "+++ ",
            "*** Update File: ",
            "*** Add File: ",
            "*** Delete File: ",
            "*** Move to: ",
        ];
        let Some(path) = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix)) else {
            continue;
        };
        let path = path.split('\t').next().unwrap_or_default().trim();
        let path = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path);
        if path != "/dev/null" && !path.is_empty() && !paths.iter().any(|known| known == path) {
            paths.push(path.to_owned());
        }
    }
    paths
}

/// Returns the text of a file; `Some(None)` if the file does not exist, `None` if its text can't be shown.
#[allow(clippy::option_option)] // no file and no text to show are different
fn read_text(root: &WorkspaceRoot, path: &str) -> Option<Option<String>> {
    let path = root.resolve(path).ok()?;
    if !root.exists(&path) {
        return Some(None);
    }
    let bytes = root.read(&path, MAX_SHOWN_FILE).ok()?;
    String::from_utf8(bytes).ok().map(Some)
}

/// Returns a diff as a fenced code block; no line of the diff closes the fence.
pub(super) fn diff_block(diff: &str) -> String {
    let fence = code_fence(diff);
    format!("{fence}diff\n{diff}\n{fence}")
}

/// Returns the change that a call is going to make, as far as it follows from the arguments.
fn planned_content(root: &WorkspaceRoot, tool: &str, arguments: &Value) -> Vec<ToolCallContent> {
    let Some(fields) = arguments.as_object() else { return Vec::new() };
    if describe(tool).is_none_or(|tool| tool.target != TargetKind::Write) {
        return Vec::new();
    }
    if let Some(patch) = CallArguments(fields).text("patch") {
        return vec![diff_block(&bounded(patch.trim_end())).into()];
    }
    let Some(path) = CallArguments(fields).text("path") else { return Vec::new() };
    let Some(old) = read_text(root, path) else { return Vec::new() };
    planned_text(fields, old.as_deref())
        .map(|new| diff_of(root, path, old, new))
        .into_iter()
        .collect()
}

/// Returns the text of a file after a call with these arguments; `None` if the call would fail.
fn planned_text(fields: &Map<String, Value>, old: Option<&str>) -> Option<String> {
    let text = |name: &str| CallArguments(fields).text(name);
    match (text("old_str"), text("new_str"), text("content")) {
        (Some(from), Some(to), _) => {
            let old = old.filter(|_| !from.is_empty())?;
            let replaces_all = fields.get("replace_all").and_then(Value::as_bool) == Some(true);
            match old.matches(from).count() {
                0 => None,
                1 => Some(old.replacen(from, to, 1)),
                _ if replaces_all => Some(old.replace(from, to)),
                _ => None,
            }
        }
        (_, _, Some(content)) => match (text("mode"), old) {
            (Some("append"), Some(old)) => {
                let end = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
                Some(format!("{old}{end}{content}"))
            }
            _ => Some(content.to_owned()),
        },
        // The call deletes the file.
        _ => old.map(|_| String::new()),
    }
}

fn diff_of(root: &WorkspaceRoot, path: &str, old: Option<String>, new: String) -> ToolCallContent {
    let path = root.resolve(path).map_or_else(|_| path.into(), |path| absolute(root, &path));
    Diff::new(path, new).old_text(old).into()
}
