//! `list_files`: lists the entries of a folder.

use globset::GlobMatcher;
use schemars::JsonSchema;
use serde::Deserialize;

use super::description::{BuiltInTool, Subject, TargetKind, ToolDescription};
use super::tool::{CallContext, Tool, ToolInvocation, ToolOutput};
use super::{error_hints, schema};
use crate::model::CallAccess;
use crate::policy::{CallKind, CallTarget};
use crate::port::ToolSpec;
use crate::workspace::{FolderEntry, RelPath, WorkspaceRoot};

const NAME: &str = "list_files";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    description: ToolDescription {
        name: NAME,
        kind: CallKind::Reads,
        target: TargetKind::Search,
        summarize: |arguments| match arguments.text("pattern") {
            Some(pattern) => arguments.search(Subject::Text(pattern)),
            None => arguments.path(None),
        },
    },
    build: |context| Some(Box::new(ListFiles::new(context.root.clone()))),
};

/// Lists folders.
pub(super) struct ListFiles {
    root: WorkspaceRoot,
    spec: ToolSpec,
}

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

struct Call {
    root: WorkspaceRoot,
    path: RelPath,
    pattern: Option<GlobMatcher>,
    recursive: bool,
}

/// The maximum number of entries in a result.
const MAX_ENTRIES: usize = 1_000;

impl ListFiles {
    /// Returns the tool.
    pub(super) fn new(root: WorkspaceRoot) -> Self {
        let spec = schema::tool_spec::<Arguments>(
            NAME,
            "Lists the files and folders in a folder; a folder's name ends with /.",
        );
        Self { root, spec }
    }
}

impl Tool for ListFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let Arguments { path, pattern, recursive } =
            schema::parse_arguments(&self.spec, arguments)?;
        let path = self.root.resolve(path.as_deref().unwrap_or(".")).map_err(|e| e.to_string())?;
        let pattern = pattern.map(|pattern| compile_glob(&pattern)).transpose()?;
        Ok(Box::new(Call { root: self.root.clone(), path, pattern, recursive }))
    }
}

fn compile_glob(pattern: &str) -> Result<GlobMatcher, String> {
    let invalid = |error| format!("Invalid arguments for list_files: pattern: {error}.");
    super::glob::compile_glob(pattern).map_err(invalid)
}

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        TOOL.description.kind
    }

    fn access(&self) -> CallAccess {
        CallAccess::read(&self.path.to_string())
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![CallTarget::Search(self.path.to_string())]
    }

    fn real_targets(&self) -> Vec<CallTarget> {
        self.root
            .real_path(&self.path)
            .map(|path| CallTarget::Search(path.to_string()))
            .into_iter()
            .collect()
    }

    fn summary(&self) -> String {
        self.path.to_string()
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        let mut lines = Vec::new();
        let mut folders = vec![self.path.clone()];
        let mut more = false;
        while let Some(folder) = folders.pop() {
            if context.scope.cancel.is_cancelled() {
                break;
            }
            let (entries, is_cut) = match self.root.list(&folder, MAX_ENTRIES) {
                Ok(listed) => listed,
                Err(error) if folder == self.path => {
                    return ToolOutput::failed(error_hints::describe_missing(&self.root, &error));
                }
                // Entries that cannot be read, or no longer exist, are skipped.
                Err(_) => continue,
            };
            more |= is_cut;
            for FolderEntry { name, kind } in entries.iter().rev() {
                let path = folder.join(name);
                if self.recursive
                    && *kind == crate::workspace::FileKind::Directory
                    && name != ".git"
                {
                    folders.push(path);
                }
            }
            for FolderEntry { name, kind } in entries {
                let is_wanted = self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(&name));
                let slash = if kind == crate::workspace::FileKind::Directory { "/" } else { "" };
                if is_wanted {
                    lines.push(format!("{}{slash}", folder.join(&name)));
                }
            }
            if lines.len() > MAX_ENTRIES {
                more = true;
                break;
            }
        }
        if lines.is_empty() {
            return ToolOutput::ok("(nothing)");
        }
        lines.truncate(MAX_ENTRIES);
        if more {
            lines.push(format!(
                "[only the first {} are shown; narrow path or pattern]",
                lines.len()
            ));
        }
        ToolOutput::ok(lines.join("\n"))
    }
}
