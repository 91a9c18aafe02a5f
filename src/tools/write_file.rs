//! `write_file`: writes a file or appends to it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::{Edit, EditCall, build_tool, resolve};
use super::description::{BuiltInTool, SummaryDetail, TargetKind};
use super::error_hints;
use super::file_edit::{FileEdit, MAX_FILE_SIZE};
use super::replace::with_crlf;
use crate::types::pluralize;
use crate::workspace::{Encoding, FileError, RelPath, TextFile, WorkspaceRoot, is_binary};

const NAME: &str = "write_file";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &["Write"],
    target: TargetKind::Write,
    summarize: |arguments| arguments.path(arguments.lines("content").map(SummaryDetail::Lines)),
    build: |context| {
        let root = context.guarded_root(NAME);
        Some(build_tool(
            NAME,
            "Writes a text file: makes a new one, replaces one, or adds to the end of one. To change a part of a file, \
             use edit_file. Text that is added begins on a line of its own.",
            move |Arguments { path, content, mode }| {
                let path = resolve(&root, Some(&path))?;
                Ok(EditCall::new(&root, WrittenFile { path, content, mode }))
            },
        ))
    },
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace. Missing folders are created.
    path: String,
    /// The content.
    content: String,
    /// Whether the content replaces the file or is appended to it. Default: overwrite.
    #[serde(default)]
    mode: WriteMode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WriteMode {
    #[default]
    Overwrite,
    Append,
}

struct WrittenFile {
    path: RelPath,
    content: String,
    mode: WriteMode,
}

impl Edit for WrittenFile {
    fn paths(&self) -> Vec<&RelPath> {
        vec![&self.path]
    }

    fn summary(&self) -> String {
        let lines = pluralize(self.content.lines().count(), "line", "lines");
        match self.mode {
            WriteMode::Overwrite => format!("{} ({lines})", self.path),
            WriteMode::Append => format!("{} (+{lines})", self.path),
        }
    }

    fn edit(&self, root: &WorkspaceRoot) -> Result<FileEdit, String> {
        let path = root.canonical(&self.path).map_err(|error| error.to_string())?;
        let before = match root.read(&path, MAX_FILE_SIZE) {
            Ok(content) => Some(content),
            Err(FileError::Missing(_)) => None,
            Err(error) => return Err(error.to_string()),
        };
        let after = match &before {
            Some(before) => self.replace_content(&path, before)?,
            None => self.content.as_bytes().into(),
        };
        Ok(FileEdit::new(path, before.as_deref(), Some(after)))
    }
}

impl WrittenFile {
    /// Returns the new content of an existing file, with its encoding and line ends.
    ///
    /// # Errors
    ///
    /// Fails if content would be appended to a binary file, or to text in an unknown encoding.
    fn replace_content(&self, path: &RelPath, before: &[u8]) -> Result<Arc<[u8]>, String> {
        let text = TextFile::read(before.to_vec()).filter(|_| !is_binary(before));
        let text = match (text, self.mode) {
            (Some(text), _) => text,
            (None, WriteMode::Overwrite) => return Ok(self.content.as_bytes().into()),
            (None, WriteMode::Append) => {
                return Err(format!("'{path}' is a binary file; text cannot be added to it"));
            }
        };
        if self.mode == WriteMode::Append && TextFile::would_mix_encodings(before, &self.content) {
            return Err(error_hints::describe_encoding_conflict(path));
        }
        // A file with a byte order mark keeps its own.
        let content = match text.encoding {
            Encoding::Bytes => &self.content,
            _ => self.content.strip_prefix('\u{feff}').unwrap_or(&self.content),
        };
        let content = match text.line_end() {
            b"\r\n" => with_crlf(content.as_bytes()),
            _ => content.as_bytes().to_vec(),
        };
        let content = match self.mode {
            WriteMode::Overwrite => content,
            WriteMode::Append => append_text(&text.content, &content, text.line_end()),
        };
        Ok(text.encode(&content).unwrap_or(content).into())
    }
}

/// Appends text, after completing the last line with a line end if it has none.
fn append_text(text: &[u8], more: &[u8], line_end: &[u8]) -> Vec<u8> {
    let is_ended = text.is_empty() || text.ends_with(b"\n");
    let goes_on = more.is_empty() || more.starts_with(b"\n") || more.starts_with(b"\r\n");
    [text, if is_ended || goes_on { b"" } else { line_end }, more].concat()
}
