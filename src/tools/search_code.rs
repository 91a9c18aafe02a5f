//! `search_code`: lines that a regular expression fits.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::permission::Judge;
use super::schema;
use super::search::{Search, Text, Walk, names};
use super::tool::{Context, Kind, Output, Prepared, Target, Tool};
use crate::model::Access;
use crate::port::ToolSpec;
use crate::workspace::Root;

/// Searches for regular expressions.
pub(super) struct SearchCode {
    root: Root,
    judge: Arc<Judge>,
    spec: ToolSpec,
}

const NAME: &str = "search_code";

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A regular expression, for one line.
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
    pub(super) fn new(root: Root, judge: Arc<Judge>) -> Self {
        let spec = schema::spec::<Arguments>(
            NAME,
            "Searches the content of files with a regular expression. Files that the project ignores, and binary files, \
             are left out.",
        );
        Self { root, judge, spec }
    }
}

impl Tool for SearchCode {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let arguments: Arguments = schema::parse(&self.spec, arguments)?;
        let Arguments { pattern, path, file_pattern, context_lines, max_results, case_sensitive } =
            arguments;
        let case_sensitive = case_sensitive.unwrap_or(true);
        let matcher = Search::matcher(&pattern, Text::Expression, case_sensitive).map_err(|error| {
            format!("Invalid arguments for {NAME}: pattern: {error}. To search for a text as it is, use grep.")
        })?;
        let invalid = |error| format!("Invalid arguments for {NAME}: file_pattern: {error}.");
        let walk = Walk {
            path: self.root.resolve(path.as_deref().unwrap_or(".")).map_err(|e| e.to_string())?,
            root: self.root.clone(),
            names: file_pattern.map(|names| self::names(&names)).transpose().map_err(invalid)?,
            judge: Arc::clone(&self.judge),
            tool: NAME,
        };
        let most = count(max_results.unwrap_or(20).max(1), 1_000);
        let search = Search { walk, matcher, context: count(context_lines.unwrap_or(2), 50), most };
        Ok(Box::new(SearchCall { search, text: pattern }))
    }
}

/// Returns a number that is not larger than another one.
pub(super) fn count(number: u64, most: usize) -> usize {
    usize::try_from(number).unwrap_or(most).min(most)
}

/// A call that searches the content of files.
pub(super) struct SearchCall {
    pub(super) search: Search,
    /// What is searched, for people.
    pub(super) text: String,
}

impl Prepared for SearchCall {
    fn kind(&self) -> Kind {
        Kind::Reads
    }

    fn access(&self) -> Access {
        Access::read(&self.search.walk.place())
    }

    fn targets(&self) -> Vec<Target> {
        vec![Target::Search(self.search.walk.path.to_string())]
    }

    fn real_targets(&self) -> Vec<Target> {
        self.search.walk.real_targets()
    }

    fn summary(&self) -> String {
        match self.search.walk.path.is_root() {
            true => self.text.clone(),
            false => format!("{} in {}", self.text, self.search.walk.path),
        }
    }

    fn run(self: Box<Self>, context: &Context<'_>) -> Output {
        self.search.run(&context.scope.cancel)
    }
}
