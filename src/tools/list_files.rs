//! `list_files`: lists the entries of a folder.

use std::collections::BTreeSet;
use std::time::Instant;

use globset::GlobMatcher;
use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::{ReadCall, build_tool, resolve};
use super::description::{BuiltInTool, Subject, TargetKind};
use super::glob::compile_glob;
use super::search::WalkEnd;
use super::tool::ToolOutput;
use crate::policy::CallTarget;
use crate::port::CancellationToken;
use crate::workspace::{FileError, FileKind, FolderEntry, RelPath, WorkspaceRoot};

const NAME: &str = "list_files";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &["LS"],
    target: TargetKind::Search,
    summarize: |arguments| match arguments.text("pattern") {
        Some(pattern) => arguments.search(Subject::Text(pattern)),
        None => arguments.path(None),
    },
    build: |context| {
        let root = context.root.clone();
        Some(build_tool(
            NAME,
            "Lists the files and folders in a folder; a folder's name ends with /.",
            move |Arguments { path, pattern, recursive }| {
                let path = resolve(&root, path.as_deref())?;
                let invalid =
                    |error| format!("Invalid arguments for list_files: pattern: {error}.");
                let pattern = pattern.map(|pattern| compile_glob(&pattern)).transpose();
                let pattern = pattern.map_err(invalid)?;
                Ok(ReadCall {
                    root: root.clone(),
                    summary: path.to_string(),
                    path,
                    target: CallTarget::Search,
                    read: Box::new(move |root, path, context| {
                        list(root, path, pattern.as_ref(), recursive, &context.scope.cancel)
                    }),
                })
            },
        ))
    },
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The folder, relative to the workspace. Default: the workspace itself.
    path: Option<String>,
    /// A glob for the names, like `*.rs`.
    pattern: Option<String>,
    /// Whether to list subfolders as well. Default: false.
    #[serde(default)]
    recursive: bool,
}

/// The maximum number of entries in a result.
const MAX_ENTRIES: usize = 1_000;

fn list(
    root: &WorkspaceRoot,
    path: &RelPath,
    pattern: Option<&GlobMatcher>,
    recursive: bool,
    cancel: &CancellationToken,
) -> Result<ToolOutput, FileError> {
    let mut lines = Vec::new();
    let mut folders = vec![path.clone()];
    let (begun, mut end, mut has_more) = (Instant::now(), WalkEnd::Complete, false);
    while let Some(folder) = folders.pop().filter(|_| end == WalkEnd::Complete && !has_more) {
        let entries = match root.entries(&folder) {
            Ok(entries) => entries,
            Err(error) if folder == *path => return Err(error),
            // Entries that cannot be read, or no longer exist, are skipped.
            Err(_) => continue,
        };
        let (mut shown, mut below) = (BTreeSet::new(), Vec::new());
        for entry in entries {
            end = WalkEnd::of_limits(begun, cancel);
            if end != WalkEnd::Complete {
                break;
            }
            if recursive && entry.kind == FileKind::Directory && entry.name != ".git" {
                below.push(folder.join(&entry.name));
            }
            if pattern.is_none_or(|pattern| pattern.is_match(&entry.name)) {
                shown.insert(entry);
                if lines.len() + shown.len() > MAX_ENTRIES {
                    shown.pop_last();
                    has_more = true;
                }
            }
        }
        for FolderEntry { name, kind } in shown {
            let slash = if kind == FileKind::Directory { "/" } else { "" };
            lines.push(format!("{}{slash}", folder.join(&name)));
        }
        below.sort_by(|a, b| b.cmp(a));
        folders.append(&mut below);
    }
    if lines.is_empty() && end == WalkEnd::Complete {
        return Ok(ToolOutput::ok("(nothing)"));
    }
    if has_more {
        lines.push(format!("[only the first {} are shown; narrow path or pattern]", lines.len()));
    }
    match end {
        WalkEnd::Complete => {}
        WalkEnd::TimedOut => {
            lines
                .push("[not all entries were looked at: it took too long; narrow path]".to_owned());
        }
        WalkEnd::Cancelled => lines.push("[not all entries were looked at]".to_owned()),
    }
    Ok(ToolOutput::ok(lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_list_says_that_it_is_not_complete() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        let cancel = CancellationToken::new();
        let list = || list(&root, &RelPath::root(), None, true, &cancel).unwrap().text;
        assert_eq!(list(), "a");
        cancel.cancel();
        assert_eq!(list(), "[not all entries were looked at]");
    }
}
