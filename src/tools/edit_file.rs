//! `edit_file`: replaces text in a file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::description::{BuiltInTool, SummaryDetail, TargetKind, ToolDescription};
use super::file_edit::{FileEdit, MAX_FILE_SIZE, real_targets};
use super::replace::{NotReplaced, Occurrences, replace};
use super::tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput};
use super::{error_hints, nearest_lines, schema};
use crate::model::CallAccess;
use crate::policy::{CallKind, CallTarget};
use crate::port::ToolSpec;
use crate::workspace::{RelPath, TextFile, WorkspaceRoot, is_binary};

const NAME: &str = "edit_file";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    description: ToolDescription {
        name: NAME,
        kind: CallKind::Changes,
        target: TargetKind::Write,
        summarize: |arguments| {
            let lines = arguments.lines("old_str").zip(arguments.lines("new_str"));
            arguments.path(lines.map(|(old, new)| SummaryDetail::Change { old, new }))
        },
    },
    build: |context| Some(Box::new(EditFile::new(context.guarded_root(NAME)))),
};

/// Edits files.
pub(super) struct EditFile {
    root: WorkspaceRoot,
    spec: ToolSpec,
}

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
    /// The text to be replaced, exactly as it is in the file, with enough of its surroundings to occur only once.
    old_str: String,
    /// The replacement.
    new_str: String,
    /// Whether to replace every occurrence. Default: false, and `old_str` must occur exactly once.
    #[serde(default)]
    replace_all: bool,
}

struct Call {
    root: WorkspaceRoot,
    path: RelPath,
    arguments: Arguments,
    edit: Option<(FileEdit, usize)>,
}

impl EditFile {
    /// Returns the tool.
    pub(super) fn new(root: WorkspaceRoot) -> Self {
        let spec = schema::tool_spec::<Arguments>(
            NAME,
            "Replaces a piece of text in a file. old_str must occur exactly once, unless replace_all is \
             set. Spaces and indentation count; line ends don't.",
        );
        Self { root, spec }
    }
}

impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let arguments: Arguments = schema::parse_arguments(&self.spec, arguments)?;
        if arguments.old_str.is_empty() {
            let error = "Invalid arguments for edit_file: old_str is empty. Give the text to be replaced, or use \
                         write_file for a new file.";
            return Err(error.to_owned());
        }
        let path = self.root.resolve(&arguments.path).map_err(|error| error.to_string())?;
        Ok(Box::new(Call { root: self.root.clone(), path, arguments, edit: None }))
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
        let lines = |text: &str| text.lines().count();
        let (old, new) = (lines(&self.arguments.old_str), lines(&self.arguments.new_str));
        format!("{} ({old}→{new} lines)", self.path)
    }

    fn plan(&mut self) -> Result<CallPlan, ToolOutput> {
        let (edit, places) = self.edit().map_err(ToolOutput::failed)?;
        let plan = edit.plan();
        self.edit = Some((edit, places));
        Ok(plan)
    }

    fn run(self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        let (edit, places) = match self.edit {
            Some(edit) => edit,
            None => match self.edit() {
                Ok(edit) => edit,
                Err(error) => return ToolOutput::failed(error),
            },
        };
        let output = edit.apply(&self.root);
        match (output.status, places) {
            (crate::model::ToolStatus::Ok, 2..) => {
                ToolOutput { text: format!("{} {places} places replaced.", output.text), ..output }
            }
            _ => output,
        }
    }
}

impl Call {
    /// Computes the change and the number of replaced occurrences.
    fn edit(&self) -> Result<(FileEdit, usize), String> {
        let Arguments { old_str, new_str, replace_all, .. } = &self.arguments;
        let file_error = |error| error_hints::describe_missing(&self.root, &error);
        let path = self.root.canonical(&self.path).map_err(file_error)?;
        let before = self.root.read(&path, MAX_FILE_SIZE).map_err(file_error)?;
        let binary = || format!("'{path}' is a binary file; it cannot be edited as text");
        if is_binary(&before) {
            return Err(binary());
        }
        if TextFile::would_mix_encodings(&before, new_str) {
            return Err(error_hints::describe_encoding_conflict(&path));
        }
        let text = TextFile::read(before.clone()).ok_or_else(binary)?;
        let places = if *replace_all { Occurrences::All } else { Occurrences::One };
        let replaced = replace(&text.content, old_str.as_bytes(), new_str.as_bytes(), places);
        let (content, places) = replaced.map_err(|why| match why {
            NotReplaced::Missing => {
                format!("old_str not found in {path}. {}", nearest_lines::describe_nearest(&text.content, old_str))
            }
            NotReplaced::Ambiguous(times) => format!(
                "old_str appears {times} times in {path}. Give more of the text around it, so that it is found only \
                 once, or set replace_all."
            ),
            NotReplaced::Unchanged => {
                format!("old_str and new_str are the same; nothing would change in {path}.")
            }
        })?;
        let after = text.encode(&content).ok_or_else(binary)?;
        Ok((FileEdit::new(path, Some(&before), Some(after.into())), places))
    }
}
