//! `delete_file`: deletes a file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::description::{BuiltInTool, TargetKind, ToolDescription};
use super::file_edit::{FileEdit, MAX_FILE_SIZE, real_targets};
use super::settings::FileDeletion;
use super::tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput};
use super::{error_hints, schema};
use crate::model::CallAccess;
use crate::policy::{CallKind, CallTarget};
use crate::port::ToolSpec;
use crate::workspace::{RelPath, WorkspaceRoot};

const NAME: &str = "delete_file";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    description: ToolDescription {
        name: NAME,
        kind: CallKind::Changes,
        target: TargetKind::Write,
        summarize: |arguments| arguments.path(None),
    },
    build: |context| {
        let is_allowed = context.settings.delete == FileDeletion::Allowed;
        is_allowed.then(|| Box::new(DeleteFile::new(context.guarded_root(NAME))) as Box<dyn Tool>)
    },
};

/// Deletes files.
pub(super) struct DeleteFile {
    root: WorkspaceRoot,
    spec: ToolSpec,
}

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
}

struct Call {
    root: WorkspaceRoot,
    path: RelPath,
    edit: Option<FileEdit>,
}

impl DeleteFile {
    /// Returns the tool.
    pub(super) fn new(root: WorkspaceRoot) -> Self {
        let spec = schema::tool_spec::<Arguments>(NAME, "Deletes a file. Folders are not deleted.");
        Self { root, spec }
    }
}

impl Tool for DeleteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let Arguments { path } = schema::parse_arguments(&self.spec, arguments)?;
        let path = self.root.resolve(&path).map_err(|error| error.to_string())?;
        Ok(Box::new(Call { root: self.root.clone(), path, edit: None }))
    }
}

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        TOOL.description.kind
    }

    fn access(&self) -> CallAccess {
        CallAccess::write(&self.path.to_string())
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![CallTarget::Write(self.path.to_string())]
    }

    fn real_targets(&self) -> Vec<CallTarget> {
        real_targets(&self.root, &self.path)
    }

    fn summary(&self) -> String {
        self.path.to_string()
    }

    fn plan(&mut self) -> Result<CallPlan, ToolOutput> {
        let failed = |error| ToolOutput::failed(error_hints::describe_missing(&self.root, &error));
        let path = self.root.canonical(&self.path).map_err(failed)?;
        let before = self.root.read(&path, MAX_FILE_SIZE).map_err(failed)?;
        let edit = FileEdit::new(path, Some(&before), None);
        let plan = edit.plan();
        self.edit = Some(edit);
        Ok(plan)
    }

    fn run(mut self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        if self.edit.is_none()
            && let Err(output) = self.plan()
        {
            return output;
        }
        match self.edit {
            Some(edit) => edit.apply(&self.root),
            None => ToolOutput::failed("nothing to delete"),
        }
    }
}
