//! `write_file`: a whole file, or something at its end.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::advice;
use super::edit::Edit;
use super::replace::with_crlf;
use super::schema;
use super::tool::{Context, Kind, Output, Plan, Prepared, Target, Tool};
use crate::model::{Access, count};
use crate::port::ToolSpec;
use crate::workspace::{FileError, LineEnd, RelPath, Root, Text, is_binary};

/// Writes files.
pub(super) struct WriteFile {
    root: Root,
    spec: ToolSpec,
}

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace. Folders that are missing are made.
    path: String,
    /// The text.
    content: String,
    /// Whether the text replaces the file or is added at its end. Default: overwrite.
    #[serde(default)]
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Overwrite,
    Append,
}

struct Call {
    root: Root,
    path: RelPath,
    content: String,
    mode: Mode,
    edit: Option<Edit>,
}

impl WriteFile {
    /// Returns the tool.
    pub(super) fn new(root: Root) -> Self {
        let spec = schema::spec::<Arguments>(
            "write_file",
            "Writes a text file: makes a new one, replaces one, or adds to the end of one. To change a part of a file, \
             use edit_file. Text that is added begins on a line of its own.",
        );
        Self { root, spec }
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let Arguments { path, content, mode } = schema::parse(&self.spec, arguments)?;
        let path = self.root.resolve(&path).map_err(|error| error.to_string())?;
        Ok(Box::new(Call { root: self.root.clone(), path, content, mode, edit: None }))
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
        let lines = count(self.content.lines().count(), "line", "lines");
        match self.mode {
            Mode::Overwrite => format!("{} ({lines})", self.path),
            Mode::Append => format!("{} (+{lines})", self.path),
        }
    }

    fn plan(&mut self) -> Result<Plan, Output> {
        let edit = self.edit().map_err(Output::failed)?;
        let plan = edit.plan();
        self.edit = Some(edit);
        Ok(plan)
    }

    fn run(self: Box<Self>, _: &Context<'_>) -> Output {
        let edit = match self.edit {
            Some(edit) => edit,
            None => match self.edit() {
                Ok(edit) => edit,
                Err(error) => return Output::failed(error),
            },
        };
        edit.run(&self.root)
    }
}

impl Call {
    fn edit(&self) -> Result<Edit, String> {
        let path = self.root.canonical(&self.path).map_err(|error| error.to_string())?;
        let before = match self.root.read(&path, super::edit::LIMIT) {
            Ok(content) => Some(content),
            Err(FileError::Missing(_)) => None,
            Err(error) => return Err(error.to_string()),
        };
        let after = match &before {
            Some(before) => self.over(&path, before)?,
            None => self.content.as_bytes().into(),
        };
        Ok(Edit::new(path, before.as_deref(), Some(after)))
    }

    /// Returns the new content of a file that has one. Its encoding and its line ends stay.
    ///
    /// # Errors
    ///
    /// Fails when the content is to be added to what is no text, or is text of an unknown encoding.
    fn over(&self, path: &RelPath, before: &[u8]) -> Result<Arc<[u8]>, String> {
        let text = Text::read(before.to_vec()).filter(|_| !is_binary(before));
        let text = match (text, self.mode) {
            (Some(text), _) => text,
            (None, Mode::Overwrite) => return Ok(self.content.as_bytes().into()),
            (None, Mode::Append) => {
                return Err(format!("'{path}' is a binary file; text cannot be added to it"));
            }
        };
        if self.mode == Mode::Append && Text::would_mix(before, &self.content) {
            return Err(advice::other_encoding(path));
        }
        let content = match text.line_end() {
            Some(LineEnd::CrLf) => with_crlf(self.content.as_bytes()),
            Some(LineEnd::Lf | LineEnd::Mixed) | None => self.content.as_bytes().to_vec(),
        };
        let content = match self.mode {
            Mode::Overwrite => content,
            Mode::Append => appended(&text.content, &content, text.line_end()),
        };
        Ok(text.with(&content).unwrap_or(content).into())
    }
}

/// Returns a text with another one behind it. Its last line gets an end if it has none, so that it stays a line.
fn appended(text: &[u8], more: &[u8], end: Option<LineEnd>) -> Vec<u8> {
    let is_ended = text.is_empty() || text.ends_with(b"\n");
    let goes_on = more.is_empty() || more.starts_with(b"\n") || more.starts_with(b"\r\n");
    let between: &[u8] = match end {
        _ if is_ended || goes_on => b"",
        Some(LineEnd::CrLf) => b"\r\n",
        Some(LineEnd::Lf | LineEnd::Mixed) | None => b"\n",
    };
    [text, between, more].concat()
}
