//! `read_output`: reads a stored result page by page.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::build_tool;
use super::description::{BuiltInTool, Subject, TargetKind};
use super::output_store::{OutputStore, char_boundary};
use super::tool::{CallContext, Tool, ToolInvocation, ToolOutput, Truncation};
use crate::policy::CallKind;
use crate::types::{CallAccess, CallId};
use crate::workspace::{LinePage, LinePosition};

/// The name of the tool.
pub const NAME: &str = "read_output";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &[],
    target: TargetKind::Tool,
    summarize: |arguments| Subject::Text(arguments.text("call_id").unwrap_or_default()).into(),
    // The registry builds the tool, since it needs the store.
    build: |_| None,
};

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The `call_id` from the shortened result.
    call_id: String,
    /// The first line to read, counted from 1. Default: 1.
    offset: Option<u64>,
    /// How many lines to read. Default: 200.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
    /// How many bytes of the first line to leave out, for a line that is longer than a page. Default: 0.
    byte: Option<u64>,
}

struct Call {
    results: Arc<dyn OutputStore>,
    id: CallId,
    first: LinePosition,
    lines: u64,
    budget: usize,
}

/// The default number of lines in a page.
const DEFAULT_LINES: u64 = 200;

/// The size of a page in bytes if results are unlimited.
const DEFAULT_PAGE_BYTES: usize = 64 * 1024;

/// Returns the maximum size of a page in bytes, which leaves room for notes.
pub(super) fn page_bytes(budget: Option<usize>) -> usize {
    budget.map_or(DEFAULT_PAGE_BYTES, |budget| budget.saturating_sub(200).max(400))
}

/// Returns the tool; `budget` is the maximum size of a page in bytes.
pub(super) fn read_output(results: Arc<dyn OutputStore>, budget: Option<usize>) -> Box<dyn Tool> {
    let budget = page_bytes(budget);
    build_tool(
        NAME,
        "Reads the whole of a tool result that was shortened, in pages. The shortened result names its call_id.",
        move |Arguments { call_id, offset, limit, byte }| {
            Ok(Call {
                results: Arc::clone(&results),
                id: call_id.as_str().into(),
                first: LinePosition { line: offset.unwrap_or(1).max(1), byte: byte.unwrap_or(0) },
                lines: limit.unwrap_or(DEFAULT_LINES).max(1),
                budget,
            })
        },
    )
}

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        CallKind::Reads
    }

    fn access(&self) -> CallAccess {
        CallAccess::Read([].into())
    }

    fn summary(&self) -> String {
        self.id.to_string()
    }

    fn run(self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        let Some(kept) = self.results.page(&self.id, self.first, self.lines) else {
            let text = format!("No result of call_id '{}' is stored.", self.id);
            return ToolOutput::failed(text);
        };
        if kept.text.is_empty() {
            let (id, total, LinePosition { line, byte }) = (&self.id, kept.lines, self.first);
            let text = match line > total {
                true => format!("The result of '{id}' has {total} lines; there is no line {line}."),
                false => {
                    format!("Line {line} of the result of '{id}' has no more than {byte} bytes.")
                }
            };
            return ToolOutput::failed(text);
        }
        let (mut text, lines) = take_lines(&kept, self.budget, self.first.line);
        let first = self.first.line;
        let last = first + lines - 1;
        let more = last < kept.lines;
        end_page(&mut text, first..=last, &kept.lines.to_string(), more);
        ToolOutput { truncation: Truncation::Done, ..ToolOutput::ok(text) }
    }
}

/// Appends a note to a page with its lines, and with the next offset if there are more.
pub(super) fn end_page(text: &mut String, lines: RangeInclusive<u64>, total: &str, more: bool) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let (first, last) = lines.into_inner();
    let _ = write!(text, "[lines {first}-{last} of {total}");
    if more {
        let _ = write!(text, "; read on with offset {}", last + 1);
    }
    text.push(']');
}

/// Returns the first lines of a page that fit into `capacity` bytes, and their number. A line is cut if it does not fit
/// by itself, or if the page has only its beginning; a note then says how to continue.
fn take_lines(kept: &LinePage, capacity: usize, first: u64) -> (String, u64) {
    let mut page = String::new();
    let mut lines = 0;
    let mut rest = kept.text.len();
    for line in kept.text.split_inclusive('\n') {
        rest -= line.len();
        if lines > 0 && page.len() + line.len() > capacity {
            break;
        }
        lines += 1;
        let beyond = if rest == 0 { kept.cut } else { 0 };
        if line.len() > capacity || beyond > 0 {
            let end = char_boundary(line, capacity);
            page.push_str(&line[..end]);
            let omitted = (line.len() - end) as u64 + beyond;
            let before = if lines == 1 { kept.byte } else { 0 };
            let (number, byte) = (first + lines - 1, before + end as u64);
            let _ = write!(
                page,
                "\n[... {omitted} bytes of line {number} omitted; continue with offset {number} and byte {byte} ...]"
            );
            break;
        }
        page.push_str(line);
    }
    (page, lines)
}
