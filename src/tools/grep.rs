//! `grep`: finds lines that contain a text.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::description::{BuiltInTool, Subject, TargetKind, ToolDescription};
use super::schema;
use super::search::{ContentSearch, FileWalk, PatternSyntax, compile_name_pattern};
use super::search_code::{SearchCall, clamp_count};
use super::tool::{Tool, ToolInvocation};
use crate::policy::{CallKind, PolicyEngine};
use crate::port::ToolSpec;
use crate::workspace::WorkspaceRoot;

const NAME: &str = "grep";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    description: ToolDescription {
        name: NAME,
        kind: CallKind::Reads,
        target: TargetKind::Search,
        summarize: |arguments| {
            arguments.search(Subject::Quoted(arguments.text("text").unwrap_or_default()))
        },
    },
    build: |context| {
        Some(Box::new(Grep::new(context.guarded_root(NAME), Arc::clone(&context.policy))))
    },
};

/// Searches for literal text.
pub(super) struct Grep {
    root: WorkspaceRoot,
    policy: Arc<PolicyEngine>,
    spec: ToolSpec,
}

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The literal text to search for.
    text: String,
    /// The folder or file, relative to the workspace. Default: the workspace.
    path: Option<String>,
    /// A glob for the files, like `*.rs` or `src/**/*.py`.
    file_pattern: Option<String>,
    /// Matches to show. Default: 30.
    max_results: Option<u64>,
    /// Whether upper and lower case differ. Default: true.
    case_sensitive: Option<bool>,
}

impl Grep {
    /// Returns the tool.
    pub(super) fn new(root: WorkspaceRoot, policy: Arc<PolicyEngine>) -> Self {
        let spec = schema::tool_spec::<Arguments>(
            NAME,
            "Searches the content of files for a literal text. Files that the project ignores, and binary files, are \
             left out.",
        );
        Self { root, policy, spec }
    }
}

impl Tool for Grep {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let arguments: Arguments = schema::parse_arguments(&self.spec, arguments)?;
        let Arguments { text, path, file_pattern, max_results, case_sensitive } = arguments;
        if text.is_empty() || text.contains('\n') {
            return Err(format!("Invalid arguments for {NAME}: text must be a part of one line."));
        }
        let matcher =
            ContentSearch::matcher(&text, PatternSyntax::Literal, case_sensitive.unwrap_or(true));
        let matcher =
            matcher.map_err(|error| format!("Invalid arguments for {NAME}: text: {error}."))?;
        let invalid = |error| format!("Invalid arguments for {NAME}: file_pattern: {error}.");
        let walk = FileWalk {
            path: self.root.resolve(path.as_deref().unwrap_or(".")).map_err(|e| e.to_string())?,
            root: self.root.clone(),
            names: file_pattern
                .map(|names| compile_name_pattern(&names))
                .transpose()
                .map_err(invalid)?,
            policy: Arc::clone(&self.policy),
            tool: NAME,
        };
        let most = clamp_count(max_results.unwrap_or(30).max(1), 1_000);
        Ok(Box::new(SearchCall {
            search: ContentSearch { walk, matcher, context: 0, max_matches: most },
            text,
        }))
    }
}
