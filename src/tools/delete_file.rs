//! `delete_file`: a file that is not needed any more.

use schemars::JsonSchema;
use serde::Deserialize;

use super::edit::{Edit, LIMIT};
use super::tool::{Context, Kind, Output, Plan, Prepared, Target, Tool};
use super::{advice, schema};
use crate::model::Access;
use crate::port::ToolSpec;
use crate::workspace::{RelPath, Root};

/// Deletes files.
pub(super) struct DeleteFile {
    root: Root,
    spec: ToolSpec,
}

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
}

struct Call {
    root: Root,
    path: RelPath,
    edit: Option<Edit>,
}

impl DeleteFile {
    /// Returns the tool.
    pub(super) fn new(root: Root) -> Self {
        let spec =
            schema::spec::<Arguments>("delete_file", "Deletes a file. Folders are not deleted.");
        Self { root, spec }
    }
}

impl Tool for DeleteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let Arguments { path } = schema::parse(&self.spec, arguments)?;
        let path = self.root.resolve(&path).map_err(|error| error.to_string())?;
        Ok(Box::new(Call { root: self.root.clone(), path, edit: None }))
    }
}

impl Prepared for Call {
    fn kind(&self) -> Kind {
        Kind::Changes
    }

    fn access(&self) -> Access {
        Access::write(&self.path.to_string())
    }

    fn targets(&self) -> Vec<Target> {
        vec![Target::Write(self.path.to_string())]
    }

    fn real_targets(&self) -> Vec<Target> {
        self.root.real(&self.path).map(|path| Target::Write(path.to_string())).into_iter().collect()
    }

    fn summary(&self) -> String {
        self.path.to_string()
    }

    fn plan(&mut self) -> Result<Plan, Output> {
        let failed = |error| Output::failed(advice::missing(&self.root, &error));
        let path = self.root.canonical(&self.path).map_err(failed)?;
        let before = self.root.read(&path, LIMIT).map_err(failed)?;
        let edit = Edit::new(path, Some(&before), None);
        let plan = edit.plan();
        self.edit = Some(edit);
        Ok(plan)
    }

    fn run(mut self: Box<Self>, _: &Context<'_>) -> Output {
        if self.edit.is_none()
            && let Err(output) = self.plan()
        {
            return output;
        }
        match self.edit {
            Some(edit) => edit.run(&self.root),
            None => Output::failed("nothing to delete"),
        }
    }
}
