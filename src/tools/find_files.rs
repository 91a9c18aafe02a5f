//! `find_files`: finds files by their names.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::{ReadCall, build_tool, resolve};
use super::description::{BuiltInTool, Subject, TargetKind};
use super::search::{FileWalk, WalkEnd, compile_name_pattern};
use super::tool::ToolOutput;
use crate::policy::CallTarget;
use crate::port::{CancellationToken, lock};
use crate::workspace::{FileError, RelPath};

const NAME: &str = "find_files";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &["Glob"],
    target: TargetKind::Search,
    summarize: |arguments| {
        arguments.search(Subject::Text(arguments.text("pattern").unwrap_or_default()))
    },
    build: |context| {
        let (root, policy) = (context.root.clone(), Arc::clone(&context.policy));
        Some(build_tool(
            NAME,
            "Finds files by a glob on their names or paths. Files that the project ignores are left out.",
            move |Arguments { pattern, path }| {
                let invalid = |error| format!("Invalid arguments for {NAME}: pattern: {error}.");
                let names = Some(compile_name_pattern(&pattern).map_err(invalid)?);
                let path = resolve(&root, path.as_deref())?;
                let (root, policy) = (root.clone(), Arc::clone(&policy));
                let walk = FileWalk { root, path, names, policy, tool: NAME };
                Ok(ReadCall {
                    root: walk.root.clone(),
                    path: walk.path.clone(),
                    target: CallTarget::Search,
                    summary: pattern,
                    read: Box::new(move |_, _, context| find(&walk, &context.scope.cancel)),
                })
            },
        ))
    },
};

/// The maximum number of files in a result.
const MAX_FILES: usize = 500;

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A glob: `*.rs` for every folder, or `src/**/test_*.py`.
    pattern: String,
    /// The folder to look in, relative to the workspace. Default: the workspace.
    path: Option<String>,
}

fn find(walk: &FileWalk, cancel: &CancellationToken) -> Result<ToolOutput, FileError> {
    let found: Mutex<(BTreeSet<RelPath>, usize)> = Mutex::default();
    let found_in = &found;
    let lookup = walk.lookup()?;
    let end = walk.for_each_file(cancel, &|| {
        let mut lookup = lookup.clone();
        Box::new(move |path| {
            if lookup.as_mut().is_some_and(|lookup| !walk.is_in_workspace(lookup, &path)) {
                return;
            }
            let mut found = lock(found_in);
            found.1 += 1;
            found.0.insert(path);
            if found.0.len() > MAX_FILES {
                found.0.pop_last();
            }
        })
    })?;
    let (files, total) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    if files.is_empty() && end == WalkEnd::Complete {
        return Ok(ToolOutput::ok("No files."));
    }
    let mut lines: Vec<String> = files.iter().map(ToString::to_string).collect();
    if total > lines.len() {
        lines.push(format!("[{} of {total} files are shown; narrow the pattern]", lines.len()));
    }
    if end != WalkEnd::Complete {
        lines.push("[not all folders were searched: it took too long; narrow path]".to_owned());
    }
    Ok(ToolOutput::ok(lines.join("\n")))
}
