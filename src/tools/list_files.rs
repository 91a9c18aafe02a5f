//! `list_files`: what lies in a folder.

use globset::GlobMatcher;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tool::{Context, Kind, Output, Prepared, Target, Tool};
use super::{advice, schema};
use crate::model::Access;
use crate::port::ToolSpec;
use crate::workspace::{Entry, RelPath, Root};

/// Lists folders.
pub(super) struct ListFiles {
    root: Root,
    spec: ToolSpec,
}

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The folder, relative to the workspace. Default: the workspace itself.
    path: Option<String>,
    /// A glob that names have to match, like `*.rs`.
    pattern: Option<String>,
    /// Whether to list folders inside as well. Default: false.
    #[serde(default)]
    recursive: bool,
}

struct Call {
    root: Root,
    path: RelPath,
    pattern: Option<GlobMatcher>,
    recursive: bool,
}

/// Entries that are listed at the most.
const MOST: usize = 1_000;

impl ListFiles {
    /// Returns the tool.
    pub(super) fn new(root: Root) -> Self {
        let spec = schema::spec::<Arguments>(
            "list_files",
            "Lists the files and folders in a folder; a folder's name ends with /.",
        );
        Self { root, spec }
    }
}

impl Tool for ListFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let Arguments { path, pattern, recursive } = schema::parse(&self.spec, arguments)?;
        let path = self.root.resolve(path.as_deref().unwrap_or(".")).map_err(|e| e.to_string())?;
        let pattern = pattern.map(|pattern| glob(&pattern)).transpose()?;
        Ok(Box::new(Call { root: self.root.clone(), path, pattern, recursive }))
    }
}

fn glob(pattern: &str) -> Result<GlobMatcher, String> {
    let invalid = |error| format!("Invalid arguments for list_files: pattern: {error}.");
    super::pattern::glob(pattern).map_err(invalid)
}

impl Prepared for Call {
    fn kind(&self) -> Kind {
        Kind::Reads
    }

    fn access(&self) -> Access {
        Access::read(&self.path.to_string())
    }

    fn targets(&self) -> Vec<Target> {
        vec![Target::Search(self.path.to_string())]
    }

    fn real_targets(&self) -> Vec<Target> {
        self.root
            .real(&self.path)
            .map(|path| Target::Search(path.to_string()))
            .into_iter()
            .collect()
    }

    fn summary(&self) -> String {
        self.path.to_string()
    }

    fn run(self: Box<Self>, context: &Context<'_>) -> Output {
        let mut lines = Vec::new();
        let mut folders = vec![self.path.clone()];
        let mut more = false;
        while let Some(folder) = folders.pop() {
            if context.scope.cancel.is_cancelled() {
                break;
            }
            let (entries, is_cut) = match self.root.list(&folder, MOST) {
                Ok(listed) => listed,
                Err(error) if folder == self.path => {
                    return Output::failed(advice::missing(&self.root, &error));
                }
                // What cannot be read, or is gone, has nothing to show.
                Err(_) => continue,
            };
            more |= is_cut;
            for Entry { name, kind } in entries.iter().rev() {
                let path = folder.join(name);
                if self.recursive && *kind == crate::workspace::Kind::Directory && name != ".git" {
                    folders.push(path);
                }
            }
            for Entry { name, kind } in entries {
                let is_wanted = self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(&name));
                let slash = if kind == crate::workspace::Kind::Directory { "/" } else { "" };
                if is_wanted {
                    lines.push(format!("{}{slash}", folder.join(&name)));
                }
            }
            if lines.len() > MOST {
                more = true;
                break;
            }
        }
        if lines.is_empty() {
            return Output::ok("(nothing)");
        }
        lines.truncate(MOST);
        if more {
            lines.push(format!(
                "[only the first {} are shown; narrow path or pattern]",
                lines.len()
            ));
        }
        Output::ok(lines.join("\n"))
    }
}
