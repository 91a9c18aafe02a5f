//! `list_files`: lists the entries of a folder.

use globset::GlobMatcher;
use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::{ReadCall, build_tool, resolve};
use super::description::{BuiltInTool, Subject, TargetKind};
use super::glob::compile_glob;
use super::tool::ToolOutput;
use crate::policy::CallTarget;
use crate::port::CancellationToken;
use crate::workspace::{FileError, FileKind, FolderEntry, RelPath, WorkspaceRoot};

const NAME: &str = "list_files";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
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
    let mut more = false;
    while let Some(folder) = folders.pop().filter(|_| !cancel.is_cancelled()) {
        let (entries, is_cut) = match root.list(&folder, MAX_ENTRIES) {
            Ok(listed) => listed,
            Err(error) if folder == *path => return Err(error),
            // Entries that cannot be read, or no longer exist, are skipped.
            Err(_) => continue,
        };
        more |= is_cut;
        for FolderEntry { name, kind } in entries.iter().rev() {
            if recursive && *kind == FileKind::Directory && name != ".git" {
                folders.push(folder.join(name));
            }
        }
        for FolderEntry { name, kind } in entries {
            if pattern.is_none_or(|pattern| pattern.is_match(&name)) {
                let slash = if kind == FileKind::Directory { "/" } else { "" };
                lines.push(format!("{}{slash}", folder.join(&name)));
            }
        }
        if lines.len() > MAX_ENTRIES {
            more = true;
            break;
        }
    }
    if lines.is_empty() {
        return Ok(ToolOutput::ok("(nothing)"));
    }
    lines.truncate(MAX_ENTRIES);
    if more {
        lines.push(format!("[only the first {} are shown; narrow path or pattern]", lines.len()));
    }
    Ok(ToolOutput::ok(lines.join("\n")))
}
