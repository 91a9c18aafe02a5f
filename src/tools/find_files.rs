//! `find_files`: files by their names.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;

use super::permission::Judge;
use super::search::{Walk, Walked, names};
use super::tool::{Context, Kind, Output, Prepared, Target, Tool};
use super::{advice, schema};
use crate::model::Access;
use crate::port::ToolSpec;
use crate::workspace::{RelPath, Root};

/// Finds files.
pub(super) struct FindFiles {
    root: Root,
    judge: Arc<Judge>,
    spec: ToolSpec,
}

const NAME: &str = "find_files";

/// Files that are shown.
const MOST: usize = 500;

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A glob: `*.rs` for every folder, or `src/**/test_*.py`.
    pattern: String,
    /// The folder to look in, relative to the workspace. Default: the workspace.
    path: Option<String>,
}

struct Call {
    walk: Walk,
    pattern: String,
}

impl FindFiles {
    /// Returns the tool.
    pub(super) fn new(root: Root, judge: Arc<Judge>) -> Self {
        let spec = schema::spec::<Arguments>(
            NAME,
            "Finds files by a glob on their names or paths. Files that the project ignores are left out.",
        );
        Self { root, judge, spec }
    }
}

impl Tool for FindFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let Arguments { pattern, path } = schema::parse(&self.spec, arguments)?;
        let invalid = |error| format!("Invalid arguments for {NAME}: pattern: {error}.");
        let walk = Walk {
            path: self.root.resolve(path.as_deref().unwrap_or(".")).map_err(|e| e.to_string())?,
            root: self.root.clone(),
            names: Some(names(&pattern).map_err(invalid)?),
            judge: Arc::clone(&self.judge),
            tool: NAME,
        };
        Ok(Box::new(Call { walk, pattern }))
    }
}

impl Prepared for Call {
    fn kind(&self) -> Kind {
        Kind::Reads
    }

    fn access(&self) -> Access {
        Access::read(&self.walk.place())
    }

    fn targets(&self) -> Vec<Target> {
        vec![Target::Search(self.walk.path.to_string())]
    }

    fn real_targets(&self) -> Vec<Target> {
        self.walk.real_targets()
    }

    fn summary(&self) -> String {
        self.pattern.clone()
    }

    fn run(self: Box<Self>, context: &Context<'_>) -> Output {
        let found: Mutex<(BTreeSet<RelPath>, usize)> = Mutex::default();
        let found_in = &found;
        let walked = self.walk.each(&context.scope.cancel, &|| {
            Box::new(move |path| {
                let mut found = found_in.lock().unwrap_or_else(PoisonError::into_inner);
                found.1 += 1;
                found.0.insert(path);
                if found.0.len() > MOST {
                    found.0.pop_last();
                }
            })
        });
        let walked = match walked {
            Ok(walked) => walked,
            Err(error) => return Output::failed(advice::missing(&self.walk.root, &error)),
        };
        let (files, total) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        if files.is_empty() && walked == Walked::All {
            return Output::ok("No files.");
        }
        let mut lines: Vec<String> = files.iter().map(ToString::to_string).collect();
        if total > lines.len() {
            lines.push(format!("[{} of {total} files are shown; narrow the pattern]", lines.len()));
        }
        if walked != Walked::All {
            lines
                .push("[not all folders were looked at: it took too long; narrow path]".to_owned());
        }
        Output::ok(lines.join("\n"))
    }
}
