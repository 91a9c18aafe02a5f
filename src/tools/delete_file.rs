//! `delete_file`: deletes a file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::{Edit, EditCall, build_tool, resolve};
use super::description::{BuiltInTool, TargetKind};
use super::error_hints;
use super::file_edit::{FileEdit, MAX_FILE_SIZE};
use super::settings::FileDeletion;
use crate::workspace::{RelPath, WorkspaceRoot};

const NAME: &str = "delete_file";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &[],
    target: TargetKind::Write,
    summarize: |arguments| arguments.path(None),
    build: |context| {
        let root = context.guarded_root(NAME);
        let description = "Deletes a file. Folders are not deleted.";
        (context.settings.delete == FileDeletion::Allowed).then(|| {
            build_tool(NAME, description, move |Arguments { path }| {
                Ok(EditCall::new(&root, Deletion(resolve(&root, Some(&path))?)))
            })
        })
    },
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
}

struct Deletion(RelPath);

impl Edit for Deletion {
    fn paths(&self) -> Vec<&RelPath> {
        vec![&self.0]
    }

    fn edit(&self, root: &WorkspaceRoot) -> Result<FileEdit, String> {
        if let Some(why) = error_hints::describe_link_deletion(root, &self.0) {
            return Err(why);
        }
        let failed = |error| error_hints::describe_missing(root, &error);
        let path = root.canonical(&self.0).map_err(failed)?;
        let before = root.read(&path, MAX_FILE_SIZE).map_err(failed)?;
        Ok(FileEdit::new(path, Some(&before), None))
    }
}
