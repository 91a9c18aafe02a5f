//! `search_code`: finds lines that match a regular expression.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::description::{BuiltInTool, Subject, TargetKind, ToolDescription};
use super::schema;
use super::search::{ContentSearch, FileWalk, PatternSyntax, compile_name_pattern};
use super::tool::{CallContext, Tool, ToolInvocation, ToolOutput};
use crate::model::CallAccess;
use crate::policy::{CallKind, CallTarget, PolicyEngine};
use crate::port::ToolSpec;
use crate::workspace::WorkspaceRoot;

const NAME: &str = "search_code";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    description: ToolDescription {
        name: NAME,
        kind: CallKind::Reads,
        target: TargetKind::Search,
        summarize: |arguments| {
            arguments.search(Subject::Quoted(arguments.text("pattern").unwrap_or_default()))
        },
    },
    build: |context| {
        Some(Box::new(SearchCode::new(context.guarded_root(NAME), Arc::clone(&context.policy))))
    },
};

/// Searches for regular expressions.
pub(super) struct SearchCode {
    root: WorkspaceRoot,
    policy: Arc<PolicyEngine>,
    spec: ToolSpec,
}

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A regular expression; it matches within one line.
    pattern: String,
    /// The folder or file, relative to the workspace. Default: the workspace.
    path: Option<String>,
    /// A glob for the files, like `*.rs` or `src/**/*.py`.
    file_pattern: Option<String>,
    /// Lines to show around each match. Default: 2.
    context_lines: Option<u64>,
    /// Matches to show. Default: 20.
    max_results: Option<u64>,
    /// Whether upper and lower case differ. Default: true.
    case_sensitive: Option<bool>,
}

impl SearchCode {
    /// Returns the tool.
    pub(super) fn new(root: WorkspaceRoot, policy: Arc<PolicyEngine>) -> Self {
        let spec = schema::tool_spec::<Arguments>(
            NAME,
            "Searches the content of files with a regular expression. Files that the project ignores, and binary files, \
             are left out.",
        );
        Self { root, policy, spec }
    }
}

impl Tool for SearchCode {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let arguments: Arguments = schema::parse_arguments(&self.spec, arguments)?;
        let Arguments { pattern, path, file_pattern, context_lines, max_results, case_sensitive } =
            arguments;
        let case_sensitive = case_sensitive.unwrap_or(true);
        let matcher = ContentSearch::matcher(&pattern, PatternSyntax::Regex, case_sensitive).map_err(|error| {
            format!("Invalid arguments for {NAME}: pattern: {error}. To search for literal text, use grep.")
        })?;
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
        let most = clamp_count(max_results.unwrap_or(20).max(1), 1_000);
        let search = ContentSearch {
            walk,
            matcher,
            context: clamp_count(context_lines.unwrap_or(2), 50),
            max_matches: most,
        };
        Ok(Box::new(SearchCall { search, text: pattern }))
    }
}

/// Returns a requested number, limited to a maximum.
pub(super) fn clamp_count(number: u64, most: usize) -> usize {
    usize::try_from(number).unwrap_or(most).min(most)
}

/// A call that searches the content of files.
pub(super) struct SearchCall {
    pub(super) search: ContentSearch,
    /// The pattern, for the summary.
    pub(super) text: String,
}

impl ToolInvocation for SearchCall {
    fn kind(&self) -> CallKind {
        CallKind::Reads
    }

    fn access(&self) -> CallAccess {
        CallAccess::read(&self.search.walk.shown_path())
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![CallTarget::Search(self.search.walk.path.to_string())]
    }

    fn real_targets(&self) -> Vec<CallTarget> {
        self.search.walk.real_targets()
    }

    fn summary(&self) -> String {
        match self.search.walk.path.is_root() {
            true => self.text.clone(),
            false => format!("{} in {}", self.text, self.search.walk.path),
        }
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        self.search.run(&context.scope.cancel)
    }
}
