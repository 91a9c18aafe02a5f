//! `read_file`: reads a text file or a page of it.

use std::fmt::Write as _;
use std::io::{Cursor, Read};

use schemars::JsonSchema;
use serde::Deserialize;

use super::description::{BuiltInTool, SummaryDetail, TargetKind, ToolDescription};
use super::schema;
use super::tool::{CallContext, Tool, ToolInvocation, ToolOutput, Truncation};
use crate::model::{CallAccess, ToolStatus};
use crate::policy::{CallKind, CallTarget};
use crate::port::ToolSpec;
use crate::workspace::{
    Encoding, FileError, OpenFile, PageLimits, RelPath, TextFile, TextPage, WorkspaceRoot,
    is_binary,
};

const NAME: &str = "read_file";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    description: ToolDescription {
        name: NAME,
        kind: CallKind::Reads,
        target: TargetKind::Read,
        summarize: |arguments| {
            let (offset, limit) = (arguments.number("offset"), arguments.number("limit"));
            let from = offset.unwrap_or(1).max(1);
            let to = limit.map(|limit| from.saturating_add(limit).saturating_sub(1));
            let is_page = offset.is_some() || limit.is_some();
            arguments.path(is_page.then_some(SummaryDetail::Range { from, to }))
        },
    },
    build: |context| Some(Box::new(ReadFile::new(context.guarded_root(NAME), context.budget()))),
};

/// Reads files.
pub(super) struct ReadFile {
    root: WorkspaceRoot,
    spec: ToolSpec,
    budget: Option<usize>,
}

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
    /// The first line to read, counted from 1. Default: 1.
    offset: Option<u64>,
    /// How many lines to read. Default: all.
    limit: Option<u64>,
}

struct Call {
    root: WorkspaceRoot,
    path: RelPath,
    /// The first line and the number of lines, if a page is requested.
    page: Option<(u64, Option<u64>)>,
    budget: Option<usize>,
}

/// The maximum size of a file that is read as a whole, in bytes.
const MAX_WHOLE_FILE: u64 = 4 << 20;

/// The maximum length of a line in a result, in bytes.
const MAX_LINE_LENGTH: usize = 16 * 1024;

/// The maximum number of bytes that are read to find a page.
const MAX_SCAN: u64 = 256 << 20;

/// The maximum size of a UTF-16 file that is loaded, in bytes.
const MAX_WIDE_FILE: u64 = 64 << 20;

impl ReadFile {
    /// Returns the tool with the maximum size of a page in bytes.
    pub(super) fn new(root: WorkspaceRoot, budget: Option<usize>) -> Self {
        let spec = schema::tool_spec::<Arguments>(
            NAME,
            "Reads a text file. Without offset and limit the whole file is read; a long one is shortened in the \
             middle, so read it in pages with offset and limit.",
        );
        Self { root, spec, budget }
    }
}

impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let Arguments { path, offset, limit } = schema::parse_arguments(&self.spec, arguments)?;
        let path = self.root.resolve(&path).map_err(|error| error.to_string())?;
        let page = (offset.is_some() || limit.is_some()).then(|| (offset.unwrap_or(1), limit));
        Ok(Box::new(Call { root: self.root.clone(), path, page, budget: self.budget }))
    }
}

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        TOOL.description.kind
    }

    fn access(&self) -> CallAccess {
        CallAccess::read(&self.path.to_string())
    }

    fn targets(&self) -> Vec<CallTarget> {
        vec![CallTarget::Read(self.path.to_string())]
    }

    fn real_targets(&self) -> Vec<CallTarget> {
        self.root
            .real_path(&self.path)
            .map(|path| CallTarget::Read(path.to_string()))
            .into_iter()
            .collect()
    }

    fn summary(&self) -> String {
        self.path.to_string()
    }

    fn run(self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        match self.read() {
            Ok(output) if output.status == ToolStatus::Ok => {
                ToolOutput { reads: vec![self.path.to_string().into()], ..output }
            }
            Ok(output) => output,
            Err(error) => {
                ToolOutput::failed(super::error_hints::describe_missing(&self.root, &error))
            }
        }
    }
}

impl Call {
    fn read(&self) -> Result<ToolOutput, FileError> {
        let OpenFile { mut file, size } = self.root.open_file(&self.path)?;
        let failed = |source| FileError::Io { action: "read", path: self.path.clone(), source };
        let mut start = Vec::new();
        (&mut file).take(8 * 1024).read_to_end(&mut start).map_err(failed)?;
        if is_binary(&start) {
            return Ok(ToolOutput::failed(format!(
                "'{}' is a binary file of {size} bytes; it cannot be shown as text.",
                self.path
            )));
        }
        if start.is_empty() {
            return Ok(ToolOutput::ok("(the file is empty)"));
        }
        if !Encoding::detect(&start).is_wide() {
            return self.page(start.chain(file)).map_err(failed);
        }
        let Some(text) = TextFile::read(self.root.read(&self.path, MAX_WIDE_FILE)?) else {
            let text = format!("'{}' begins like UTF-16 text, but is not valid UTF-16.", self.path);
            return Ok(ToolOutput::failed(text));
        };
        self.page(Cursor::new(text.content)).map_err(failed)
    }

    fn page(&self, text: impl Read) -> std::io::Result<ToolOutput> {
        let (first, lines) = self.page.unwrap_or((1, None));
        // Pages are not shortened later, so they must fit.
        let bytes = match (self.page, self.budget) {
            (Some(_), Some(budget)) => budget.saturating_sub(200).max(400),
            _ => usize::try_from(MAX_WHOLE_FILE).unwrap_or(usize::MAX),
        };
        let limits = PageLimits {
            lines: lines.unwrap_or(u64::MAX),
            bytes,
            line_bytes: MAX_LINE_LENGTH.min(bytes),
            scan: MAX_SCAN,
        };
        let page = TextPage::read(text, first, limits)?;
        let total = page.total.map_or_else(|| "many".to_owned(), |total| total.to_string());
        if page.lines == 0 {
            return Ok(ToolOutput::failed(format!(
                "'{}' has {total} lines; there is no line {first}.",
                self.path
            )));
        }
        let mark = if first <= 1 { "\u{feff}" } else { "" };
        let content = String::from_utf8_lossy(&page.content);
        let mut text = content.strip_prefix(mark).unwrap_or(&content).to_owned();
        let is_part = self.page.is_some() || page.is_full;
        if is_part {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            let _ = write!(text, "[lines {}-{} of {total}", page.first, page.last_line());
            if page.is_full {
                let _ = write!(text, "; read on with offset {}", page.last_line() + 1);
            }
            text.push(']');
        }
        if std::str::from_utf8(&page.content).is_err() {
            text += "\n[not UTF-8: some characters are shown as \u{fffd}]";
        }
        let length = if self.page.is_some() { Truncation::Done } else { Truncation::Allowed };
        Ok(ToolOutput { truncation: length, ..ToolOutput::ok(text) })
    }
}
