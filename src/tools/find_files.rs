//! `find_files`: finds files by their names.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;

use super::description::{BuiltInTool, Subject, TargetKind, ToolDescription};
use super::search::{FileWalk, WalkEnd, compile_name_pattern};
use super::tool::{CallContext, Tool, ToolInvocation, ToolOutput};
use super::{error_hints, schema};
use crate::model::CallAccess;
use crate::policy::{CallKind, CallTarget, PolicyEngine};
use crate::port::ToolSpec;
use crate::workspace::{RelPath, WorkspaceRoot};

const NAME: &str = "find_files";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    description: ToolDescription {
        name: NAME,
        kind: CallKind::Reads,
        target: TargetKind::Search,
        summarize: |arguments| {
            arguments.search(Subject::Text(arguments.text("pattern").unwrap_or_default()))
        },
    },
    build: |context| {
        Some(Box::new(FindFiles::new(context.root.clone(), Arc::clone(&context.policy))))
    },
};

/// Finds files.
pub(super) struct FindFiles {
    root: WorkspaceRoot,
    policy: Arc<PolicyEngine>,
    spec: ToolSpec,
}

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

struct Call {
    walk: FileWalk,
    pattern: String,
}

impl FindFiles {
    /// Returns the tool.
    pub(super) fn new(root: WorkspaceRoot, policy: Arc<PolicyEngine>) -> Self {
        let spec = schema::tool_spec::<Arguments>(
            NAME,
            "Finds files by a glob on their names or paths. Files that the project ignores are left out.",
        );
        Self { root, policy, spec }
    }
}

impl Tool for FindFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let Arguments { pattern, path } = schema::parse_arguments(&self.spec, arguments)?;
        let invalid = |error| format!("Invalid arguments for {NAME}: pattern: {error}.");
        let walk = FileWalk {
            path: self.root.resolve(path.as_deref().unwrap_or(".")).map_err(|e| e.to_string())?,
            root: self.root.clone(),
            names: Some(compile_name_pattern(&pattern).map_err(invalid)?),
            policy: Arc::clone(&self.policy),
            tool: NAME,
        };
        Ok(Box::new(Call { walk, pattern }))
    }
}

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        TOOL.description.kind
    }

    fn access(&self) -> CallAccess {
        CallAccess::read(&self.walk.shown_path())
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![CallTarget::Search(self.walk.path.to_string())]
    }

    fn real_targets(&self) -> Vec<CallTarget> {
        self.walk.real_targets()
    }

    fn summary(&self) -> String {
        self.pattern.clone()
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        let found: Mutex<(BTreeSet<RelPath>, usize)> = Mutex::default();
        let found_in = &found;
        let walked = self.walk.for_each_file(&context.scope.cancel, &|| {
            Box::new(move |path| {
                let mut found = found_in.lock().unwrap_or_else(PoisonError::into_inner);
                found.1 += 1;
                found.0.insert(path);
                if found.0.len() > MAX_FILES {
                    found.0.pop_last();
                }
            })
        });
        let walked = match walked {
            Ok(walked) => walked,
            Err(error) => {
                return ToolOutput::failed(error_hints::describe_missing(&self.walk.root, &error));
            }
        };
        let (files, total) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        if files.is_empty() && walked == WalkEnd::Complete {
            return ToolOutput::ok("No files.");
        }
        let mut lines: Vec<String> = files.iter().map(ToString::to_string).collect();
        if total > lines.len() {
            lines.push(format!("[{} of {total} files are shown; narrow the pattern]", lines.len()));
        }
        if walked != WalkEnd::Complete {
            lines.push("[not all folders were searched: it took too long; narrow path]".to_owned());
        }
        ToolOutput::ok(lines.join("\n"))
    }
}
