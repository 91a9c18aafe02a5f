//! The log for people, on standard error.
//!
//! [`HumanLog`] converts public events to lines, with the sentences of the catalogue. [`call_summary`] summarizes the
//! arguments of a tool call, and `call_blocks` groups the lines of calls that run in parallel. `terminal_screen` draws
//! an area below the log: the present activity from `live_status`, or the table of a batch from `batch_table`. All text
//! from a model, a tool or a file name is sanitized first.

mod batch_table;
mod call_blocks;
pub mod call_summary;
mod color;
mod diff;
mod human_log;
mod live_status;
mod terminal_screen;

pub use batch_table::{BatchTable, BatchTotals, RunningCells, ShownSession};
pub use color::{ColorChoice, can_redraw, should_use_color};
pub use diff::diff_lines;
pub use human_log::{HumanLog, LogDetail, LogStyle, PauseDrawing};
pub use terminal_screen::{TerminalUser, TerminalView};
