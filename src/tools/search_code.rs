//! `search_code`: finds lines that match a regular expression.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::build_tool;
use super::description::{BuiltInTool, Subject, TargetKind};
use super::search::{PatternSyntax, SearchRequest};

const NAME: &str = "search_code";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &["Grep"],
    target: TargetKind::Search,
    summarize: |arguments| {
        arguments.search(Subject::Quoted(arguments.text("pattern").unwrap_or_default()))
    },
    build: |context| {
        let (root, policy) = (context.guarded_root(NAME), Arc::clone(&context.policy));
        Some(build_tool(
            NAME,
            "Searches the content of files with a regular expression. Files that the project ignores, and binary files, \
             are left out.",
            move |arguments: Arguments| {
                let request = SearchRequest {
                    tool: NAME,
                    syntax: PatternSyntax::Regex,
                    pattern: arguments.pattern,
                    path: arguments.path,
                    file_pattern: arguments.file_pattern,
                    context_lines: arguments.context_lines.unwrap_or(2),
                    max_results: arguments.max_results.unwrap_or(20),
                    case_sensitive: arguments.case_sensitive.unwrap_or(true),
                };
                request.into_call(&root, &policy)
            },
        ))
    },
};

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
    #[schemars(range(min = 1))]
    max_results: Option<u64>,
    /// Whether upper and lower case differ. Default: true.
    case_sensitive: Option<bool>,
}
