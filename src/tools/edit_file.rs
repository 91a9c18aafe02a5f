//! `edit_file`: one piece of a file replaced by another.

use schemars::JsonSchema;
use serde::Deserialize;

use super::edit::Edit;
use super::replace::{NotReplaced, Places, replace};
use super::tool::{Context, Kind, Output, Plan, Prepared, Target, Tool};
use super::{advice, near, schema};
use crate::model::Access;
use crate::port::ToolSpec;
use crate::workspace::{RelPath, Root, Text, is_binary};

/// Edits files.
pub(super) struct EditFile {
    root: Root,
    spec: ToolSpec,
}

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
    /// The text to be replaced, exactly as it stands in the file, with enough of its surroundings to occur only once.
    old_str: String,
    /// The text to stand there instead.
    new_str: String,
    /// Whether to replace every occurrence. Default: false, and `old_str` has to occur exactly once.
    #[serde(default)]
    replace_all: bool,
}

struct Call {
    root: Root,
    path: RelPath,
    arguments: Arguments,
    edit: Option<(Edit, usize)>,
}

impl EditFile {
    /// Returns the tool.
    pub(super) fn new(root: Root) -> Self {
        let spec = schema::spec::<Arguments>(
            "edit_file",
            "Replaces a piece of text in a file. old_str has to stand in the file exactly once, unless replace_all is \
             set. Spaces and indentation count; line ends don't.",
        );
        Self { root, spec }
    }
}

impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let arguments: Arguments = schema::parse(&self.spec, arguments)?;
        if arguments.old_str.is_empty() {
            let error = "Invalid arguments for edit_file: old_str is empty. Give the text to be replaced, or use \
                         write_file for a new file.";
            return Err(error.to_owned());
        }
        let path = self.root.resolve(&arguments.path).map_err(|error| error.to_string())?;
        Ok(Box::new(Call { root: self.root.clone(), path, arguments, edit: None }))
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
        let lines = |text: &str| text.lines().count();
        let (old, new) = (lines(&self.arguments.old_str), lines(&self.arguments.new_str));
        format!("{} ({old}→{new} lines)", self.path)
    }

    fn plan(&mut self) -> Result<Plan, Output> {
        let (edit, places) = self.edit().map_err(Output::failed)?;
        let plan = edit.plan();
        self.edit = Some((edit, places));
        Ok(plan)
    }

    fn run(self: Box<Self>, _: &Context<'_>) -> Output {
        let (edit, places) = match self.edit {
            Some(edit) => edit,
            None => match self.edit() {
                Ok(edit) => edit,
                Err(error) => return Output::failed(error),
            },
        };
        let output = edit.run(&self.root);
        match (output.status, places) {
            (crate::model::ToolStatus::Ok, 2..) => {
                Output { text: format!("{} {places} places replaced.", output.text), ..output }
            }
            _ => output,
        }
    }
}

impl Call {
    /// Returns the change, and how many places it replaces.
    fn edit(&self) -> Result<(Edit, usize), String> {
        let Arguments { old_str, new_str, replace_all, .. } = &self.arguments;
        let file_error = |error| advice::missing(&self.root, &error);
        let path = self.root.canonical(&self.path).map_err(file_error)?;
        let before = self.root.read(&path, super::edit::LIMIT).map_err(file_error)?;
        let binary = || format!("'{path}' is a binary file; it cannot be edited as text");
        if is_binary(&before) {
            return Err(binary());
        }
        if Text::would_mix(&before, new_str) {
            return Err(advice::other_encoding(&path));
        }
        let text = Text::read(before.clone()).ok_or_else(binary)?;
        let places = if *replace_all { Places::All } else { Places::One };
        let replaced = replace(&text.content, old_str.as_bytes(), new_str.as_bytes(), places);
        let (content, places) = replaced.map_err(|why| match why {
            NotReplaced::Missing => {
                format!("old_str not found in {path}. {}", near::hint(&text.content, old_str))
            }
            NotReplaced::Ambiguous(times) => format!(
                "old_str appears {times} times in {path}. Give more of the text around it, so that it is found only \
                 once, or set replace_all."
            ),
            NotReplaced::Unchanged => {
                format!("old_str and new_str are the same; nothing would change in {path}.")
            }
        })?;
        let after = text.with(&content).ok_or_else(binary)?;
        Ok((Edit::new(path, Some(&before), Some(after.into())), places))
    }
}
