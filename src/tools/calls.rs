//! Shared parts of the built-in tools: tools built from functions, and calls that read or change files of the
//! workspace.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::description::BuildContext;
use super::file_edit::FileEdit;
use super::tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput};
use super::{ToolAccessGuard, error_hints, output_store, schema};
use crate::policy::{CallKind, CallTarget};
use crate::port::ToolSpec;
use crate::types::CallAccess;
use crate::workspace::{FileError, RelPath, WorkspaceRoot};

/// A tool built from a function that parses its arguments.
struct BuiltTool {
    spec: ToolSpec,
    prepare: Box<PrepareFn>,
}

type PrepareFn = dyn Fn(&ToolSpec, &str) -> Result<Box<dyn ToolInvocation>, String> + Send + Sync;

impl Tool for BuiltTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        (self.prepare)(&self.spec, arguments)
    }
}

/// Returns a tool built from a function that turns its arguments into a call.
pub(super) fn build_tool<A: DeserializeOwned + JsonSchema, C: ToolInvocation + 'static>(
    name: &str,
    description: &str,
    prepare: impl Fn(A) -> Result<C, String> + Send + Sync + 'static,
) -> Box<dyn Tool> {
    Box::new(BuiltTool {
        spec: schema::tool_spec::<A>(name, description),
        prepare: Box::new(move |spec, text| {
            Ok(Box::new(prepare(schema::parse_arguments(spec, text)?)?))
        }),
    })
}

impl BuildContext<'_> {
    /// Returns the workspace with a guard that also checks the policy for the real path of each file.
    pub(super) fn guarded_root(&self, tool: &'static str) -> WorkspaceRoot {
        let guard = ToolAccessGuard { tool, policy: Arc::clone(&self.policy) };
        self.root.with_guard(Arc::new(guard))
    }

    /// Returns the maximum length of a result in bytes; `None` if it is unlimited.
    pub(super) fn budget(&self) -> Option<usize> {
        output_store::bytes_for_tokens(self.settings.max_result_tokens.0)
    }
}

/// Returns the path in an argument; the workspace if it is missing.
pub(super) fn resolve(root: &WorkspaceRoot, path: Option<&str>) -> Result<RelPath, String> {
    root.resolve(path.unwrap_or(".")).map_err(|error| error.to_string())
}

/// A call that reads below one path.
pub(super) struct ReadCall {
    pub root: WorkspaceRoot,
    pub path: RelPath,
    /// The kind of target that rules match the path with.
    pub target: fn(String) -> CallTarget,
    pub summary: String,
    pub read: Box<ReadFn>,
}

/// The function that reads for a call.
type ReadFn =
    dyn FnOnce(&WorkspaceRoot, &RelPath, &CallContext<'_>) -> Result<ToolOutput, FileError> + Send;

impl ToolInvocation for ReadCall {
    fn kind(&self) -> CallKind {
        CallKind::Reads
    }

    fn access(&self) -> CallAccess {
        // The empty path stands for the whole workspace.
        CallAccess::read(&if self.path.is_root() { String::new() } else { self.path.to_string() })
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![(self.target)(self.path.to_string())]
    }

    fn real_targets(&self) -> Vec<CallTarget> {
        let real = self.root.real_path(&self.path);
        real.map(|path| (self.target)(path.to_string())).into_iter().collect()
    }

    fn summary(&self) -> String {
        self.summary.clone()
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        (self.read)(&self.root, &self.path, context).unwrap_or_else(|error| {
            ToolOutput::failed(error_hints::describe_missing(&self.root, &error))
        })
    }
}

/// A change of files, as described by the arguments of a call.
pub(super) trait Edit: Send {
    /// Resolves the arguments against the file system.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model if the arguments are invalid.
    fn resolve(&mut self, _: &WorkspaceRoot) -> Result<(), String> {
        Ok(())
    }

    /// Returns the files, without duplicates; an empty list if they are not known yet.
    fn paths(&self) -> Vec<&RelPath>;

    /// Returns a one-line summary for the user.
    fn summary(&self) -> String {
        let paths: Vec<String> = self.paths().into_iter().map(ToString::to_string).collect();
        paths.join(", ")
    }

    /// Computes the change.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model if the change is not possible.
    fn edit(&self, root: &WorkspaceRoot) -> Result<FileEdit, String>;
}

/// A call that changes files.
pub(super) struct EditCall<E> {
    pub root: WorkspaceRoot,
    pub edit: E,
    /// The computed change; `None` before planning.
    pub planned: Option<FileEdit>,
}

impl<E: Edit> EditCall<E> {
    /// Returns a call that makes a change.
    pub(super) fn new(root: &WorkspaceRoot, edit: E) -> Self {
        Self { root: root.clone(), edit, planned: None }
    }
}

impl<E: Edit> ToolInvocation for EditCall<E> {
    fn kind(&self) -> CallKind {
        CallKind::Changes
    }

    fn access(&self) -> CallAccess {
        match self.edit.paths() {
            paths if paths.is_empty() => CallAccess::Exclusive,
            paths => {
                // Changes of one file by two names conflict, too.
                let real = paths.iter().filter_map(|path| self.root.real_path(path));
                let real: Vec<_> = real.map(|path| path.to_string()).collect();
                let named = paths.iter().map(ToString::to_string);
                CallAccess::Write(named.chain(real).map(Into::into).collect())
            }
        }
    }

    fn resolve(&mut self) -> Result<(), String> {
        self.edit.resolve(&self.root)
    }

    fn targets(&self) -> Vec<CallTarget> {
        let paths = self.edit.paths().into_iter();
        paths.map(|path| CallTarget::Write(path.to_string())).collect()
    }

    fn real_targets(&self) -> Vec<CallTarget> {
        let real = self.edit.paths().into_iter().filter_map(|path| self.root.real_path(path));
        real.map(|path| CallTarget::Write(path.to_string())).collect()
    }

    fn summary(&self) -> String {
        self.edit.summary()
    }

    fn plan(&mut self) -> Result<CallPlan, Box<ToolOutput>> {
        let edit = self.edit.edit(&self.root).map_err(ToolOutput::failed)?;
        Ok(self.planned.insert(edit).plan())
    }

    fn diff(&self) -> String {
        self.planned.as_ref().map(FileEdit::diff).unwrap_or_default()
    }

    fn run(self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        let edit = self.planned.map_or_else(|| self.edit.edit(&self.root), Ok);
        edit.map_or_else(ToolOutput::failed, |edit| edit.apply(&self.root))
    }
}
