//! `edit_file`: replaces text in a file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::{Edit, EditCall, build_tool, resolve};
use super::description::{BuiltInTool, SummaryDetail, TargetKind};
use super::file_edit::{FileEdit, MAX_FILE_SIZE};
use super::replace::{NotReplaced, Occurrences, replace};
use super::{error_hints, nearest_lines};
use crate::workspace::{RelPath, TextFile, WorkspaceRoot, is_binary};

const NAME: &str = "edit_file";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &["Edit", "MultiEdit"],
    target: TargetKind::Write,
    summarize: |arguments| {
        let lines = arguments.lines("old_str").zip(arguments.lines("new_str"));
        arguments.path(lines.map(|(old, new)| SummaryDetail::Change { old, new }))
    },
    build: |context| {
        let root = context.guarded_root(NAME);
        Some(build_tool(
            NAME,
            "Replaces a piece of text in a file. old_str must occur exactly once, unless replace_all is \
             set. Spaces and indentation count; line ends don't.",
            move |arguments: Arguments| {
                if arguments.old_str.is_empty() {
                    let error = "Invalid arguments for edit_file: old_str is empty. Give the text to be replaced, or \
                                 use write_file for a new file.";
                    return Err(error.to_owned());
                }
                let path = resolve(&root, Some(&arguments.path))?;
                Ok(EditCall::new(&root, ReplacedText { path, arguments }))
            },
        ))
    },
};

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

struct ReplacedText {
    path: RelPath,
    arguments: Arguments,
}

impl Edit for ReplacedText {
    fn paths(&self) -> Vec<&RelPath> {
        vec![&self.path]
    }

    fn summary(&self) -> String {
        let lines = |text: &str| text.lines().count();
        let (old, new) = (lines(&self.arguments.old_str), lines(&self.arguments.new_str));
        format!("{} ({old}→{new} lines)", self.path)
    }

    fn edit(&self, root: &WorkspaceRoot) -> Result<FileEdit, String> {
        let Arguments { old_str, new_str, replace_all, .. } = &self.arguments;
        let file_error = |error| error_hints::describe_missing(root, &error);
        let path = root.canonical(&self.path).map_err(file_error)?;
        let before = root.read(&path, MAX_FILE_SIZE).map_err(file_error)?;
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
                let nearest = nearest_lines::describe_nearest(&text.content, old_str);
                format!("old_str not found in {path}. {nearest}")
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
        let mut edit = FileEdit::new(path, Some(&before), Some(after.into()));
        edit.remark = (places > 1).then(|| format!(" {places} places replaced."));
        Ok(edit)
    }
}
