//! `read_file`: reads a text file or a page of it, or an image.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::calls::{ReadCall, build_tool, resolve};
use super::description::{BuiltInTool, SummaryDetail, TargetKind};
use super::read_output::end_page;
use super::tool::{ToolOutput, Truncation};
use crate::policy::CallTarget;
use crate::types::{ToolCall, ToolStatus};
use crate::workspace::image::{ImageSource, is_image};
use crate::workspace::{
    Encoding, FileError, OpenFile, PageLimits, RelPath, TextFile, TextPage, WorkspaceRoot,
    is_binary,
};

pub const NAME: &str = "read_file";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &["Read"],
    target: TargetKind::Read,
    summarize: |arguments| {
        let (offset, limit) = (arguments.number("offset"), arguments.number("limit"));
        let from = offset.unwrap_or(1).max(1);
        let to = limit.map(|limit| from.saturating_add(limit.max(1)).saturating_sub(1));
        let is_page = offset.is_some() || limit.is_some();
        arguments.path(is_page.then_some(SummaryDetail::Range { from, to }))
    },
    build: |context| {
        let (root, budget) = (context.guarded_root(NAME), context.budget());
        Some(build_tool(
            NAME,
            "Reads a text file, or an image (PNG, JPEG, GIF, WebP). Without offset and limit the whole file is read; a long one is shortened in the \
             middle, so read it in pages with offset and limit.",
            move |Arguments { path, offset, limit }| {
                let path = resolve(&root, Some(&path))?;
                let page =
                    (offset.is_some() || limit.is_some()).then(|| (offset.unwrap_or(1), limit));
                Ok(ReadCall {
                    root: root.clone(),
                    summary: path.to_string(),
                    path,
                    target: CallTarget::Read,
                    read: Box::new(move |root, path, _| {
                        PageRequest { page, budget }.read(root, path)
                    }),
                })
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
    /// The first line to read, counted from 1. Default: 1.
    offset: Option<u64>,
    /// How many lines to read. Default: all.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

/// Returns the file that a successful call has read, for results stored before [`ToolOutput::reads`] existed: then
/// `read_file` was the only tool whose calls counted as reads.
pub fn implied_read(call: &ToolCall) -> Option<Arc<str>> {
    let is_read = *call.name == *NAME;
    let arguments: Value = serde_json::from_str(call.arguments.text()).ok().filter(|_| is_read)?;
    Some(arguments.get("path")?.as_str()?.trim_start_matches("./").into())
}

/// The part of a file that a call reads.
pub(super) struct PageRequest {
    /// The first line and the number of lines, if a page is requested.
    pub(super) page: Option<(u64, Option<u64>)>,
    pub(super) budget: Option<usize>,
}

/// The size of the beginning by which the kind of a file is detected, in bytes.
const BEGINNING: u64 = 8 * 1024;

/// The maximum size of a file that is read as a whole, in bytes.
const MAX_WHOLE_FILE: u64 = 4 << 20;

/// The text shown for an empty file.
const EMPTY_NOTE: &str = "(the file is empty)";

/// The note after the text of a file with unsaved changes.
const UNSAVED_NOTE: &str =
    "\n[with the unsaved changes of the editor; commands see the file as it was saved]";

/// The maximum length of a line in a result, in bytes.
const MAX_LINE_LENGTH: usize = 16 * 1024;

/// The maximum number of bytes that are searched for a page.
const MAX_SCAN: u64 = 256 << 20;

/// The maximum size of a UTF-16 file that is loaded, in bytes.
const MAX_WIDE_FILE: u64 = 64 << 20;

impl PageRequest {
    /// Reads the part.
    pub(super) fn read(
        &self,
        root: &WorkspaceRoot,
        path: &RelPath,
    ) -> Result<ToolOutput, FileError> {
        let OpenFile { mut file, size } = root.open_file(path)?;
        let failed = |source| FileError::Io { action: "read", path: path.clone(), source };
        let mut start = Vec::new();
        (&mut file).take(BEGINNING).read_to_end(&mut start).map_err(failed)?;
        if is_image(&start) {
            let name = path.to_string();
            return Ok(match ImageSource::read_rest(name, start, file) {
                Ok(image) => ToolOutput { images: vec![image], ..ToolOutput::ok("") },
                Err(error) => {
                    ToolOutput::failed(format!("could not read the image '{path}': {error}"))
                }
            });
        }
        if is_binary(&start) {
            return Ok(ToolOutput::failed(format!(
                "'{path}' is a binary file of {size} bytes; it cannot be shown as text."
            )));
        }
        let is_whole = size <= MAX_WHOLE_FILE && !Encoding::detect(&start).is_wide();
        let unsaved = match is_whole && root.has_buffers() {
            true => {
                (&mut file).take(MAX_WHOLE_FILE).read_to_end(&mut start).map_err(failed)?;
                root.unsaved_content(path, &start)
            }
            false => None,
        };
        let output = if let Some(content) = unsaved {
            let mut output = match content.is_empty() {
                true => ToolOutput::ok(EMPTY_NOTE),
                false => self.page(path, Cursor::new(content)).map_err(failed)?,
            };
            output.text.push_str(UNSAVED_NOTE);
            output
        } else if start.is_empty() {
            ToolOutput::ok(EMPTY_NOTE)
        } else if !Encoding::detect(&start).is_wide() {
            // A small file needs no further buffer.
            let is_small = (start.len() as u64) < BEGINNING;
            let rest = BufReader::with_capacity(if is_small { 0 } else { 64 * 1024 }, file);
            self.page(path, start.chain(rest)).map_err(failed)?
        } else if let Some(text) = TextFile::read(root.read(path, MAX_WIDE_FILE)?) {
            self.page(path, Cursor::new(text.content)).map_err(failed)?
        } else {
            ToolOutput::failed(format!(
                "'{path}' begins like UTF-16 text, but is not valid UTF-16."
            ))
        };
        let reads = if output.status == ToolStatus::Ok {
            vec![path.to_string().into()]
        } else {
            Vec::new()
        };
        Ok(ToolOutput { reads, ..output })
    }

    fn page(&self, path: &RelPath, text: impl BufRead) -> std::io::Result<ToolOutput> {
        let (first, lines) = self.page.unwrap_or((1, None));
        // Pages are not shortened later, so they must fit.
        let bytes = match (self.page, self.budget) {
            (Some(_), Some(budget)) => budget.saturating_sub(200).max(400),
            _ => usize::try_from(MAX_WHOLE_FILE).unwrap_or(usize::MAX),
        };
        let limits = PageLimits {
            lines: lines.unwrap_or(u64::MAX).max(1),
            bytes,
            line_bytes: MAX_LINE_LENGTH.min(bytes),
            scan: MAX_SCAN,
        };
        let page = TextPage::read(text, first, limits)?;
        let total = page.total.map_or_else(|| "many".to_owned(), |total| total.to_string());
        if page.lines == 0 {
            return Ok(ToolOutput::failed(format!(
                "'{path}' has {total} lines; there is no line {first}."
            )));
        }
        let (shown, is_full) = (page.first..=page.last_line(), page.is_full);
        let (mut text, is_utf8) = match String::from_utf8(page.content) {
            Ok(text) => (text, true),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), false),
        };
        if first <= 1 && text.starts_with('\u{feff}') {
            text.remove(0);
        }
        if self.page.is_some() || is_full {
            end_page(&mut text, shown, &total, is_full);
        }
        if !is_utf8 {
            text += "\n[not UTF-8: some characters are shown as \u{fffd}]";
        }
        let length = if self.page.is_some() { Truncation::Done } else { Truncation::Allowed };
        Ok(ToolOutput { truncation: length, ..ToolOutput::ok(text) })
    }
}
