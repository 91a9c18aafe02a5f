//! `grep`: finds lines that contain a text.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::build_tool;
use super::description::{BuiltInTool, Subject, TargetKind};
use super::search::{PatternSyntax, SearchRequest};

const NAME: &str = "grep";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &[],
    target: TargetKind::Search,
    summarize: |arguments| {
        arguments.search(Subject::Quoted(arguments.text("text").unwrap_or_default()))
    },
    build: |context| {
        let (root, policy) = (context.guarded_root(NAME), Arc::clone(&context.policy));
        Some(build_tool(
            NAME,
            "Searches the content of files for a literal text. Files that the project ignores, and binary files, are \
             left out.",
            move |arguments: Arguments| {
                if arguments.text.is_empty() || arguments.text.contains('\n') {
                    return Err(format!(
                        "Invalid arguments for {NAME}: text must be a part of one line."
                    ));
                }
                let request = SearchRequest {
                    tool: NAME,
                    syntax: PatternSyntax::Literal,
                    pattern: arguments.text,
                    path: arguments.path,
                    file_pattern: arguments.file_pattern,
                    context_lines: 0,
                    max_results: arguments.max_results.unwrap_or(30),
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
    /// The literal text to search for.
    text: String,
    /// The folder or file, relative to the workspace. Default: the workspace.
    path: Option<String>,
    /// A glob for the files, like `*.rs` or `src/**/*.py`.
    file_pattern: Option<String>,
    /// Matches to show. Default: 30.
    #[schemars(range(min = 1))]
    max_results: Option<u64>,
    /// Whether upper and lower case differ. Default: true.
    case_sensitive: Option<bool>,
}
