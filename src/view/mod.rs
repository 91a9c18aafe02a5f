//! Layer 4: the output of a run, for people and for programs.
//!
//! ```text
//!  RunEvent ──▶ EventProjector ──▶ PublicEvent ─┬─▶ human log, JSON stream, log file, traces
//!               (public)                        └─▶ RunResultBuilder ──▶ RunResult ──▶ JSON, text, reports
//! ```
//!
//! [`Reporter`] combines them: its [`RunReporter`] observes a run, and the reporter completes the output on every way
//! out of the program. Everything here is derived from the public events. Nothing opens a file, a socket or a terminal:
//! output goes to writers supplied by the caller, except for [`save`] and [`append`].

mod background_writer;
mod file;
mod page;
mod reporter;
mod run_info;
mod schemas;
mod sink;
mod text_columns;
mod tool_failure;

pub mod atif;
pub mod catalogue;
pub mod chart;
pub mod ci_commands;
pub mod human;
pub mod jsonl;
pub mod otel;
pub mod public_events;
pub mod reference_tables;
pub mod report;
pub mod result;
pub mod sanitize;
pub mod stats;
pub mod trace;

pub use crate::types::Language;
pub use background_writer::{OutputError, flush_blocking, write_all_blocking};
pub use file::{append, is_standard_stream, save};
pub use reporter::{Reporter, RunReporter};
pub use result::{RunResult, UnappliedWork, WorktreeResult};
pub use run_info::{CostSource, PriorUsage, RunInfo};
pub use schemas::{document_schema, event_schema, result_schema};
pub use sink::{
    AnswerDestination, JsonFormat, JsonSink, LiveEvent, OptionalSink, ReportSink, ServerState,
    TextSink,
};
pub use text_columns::{TERMINAL_WIDTH, in_columns, in_columns_within, shorten_column};
