//! Batches: many runs, shared by processes and machines.
//!
//! ```text
//!  manifest ──▶ BatchCell ──▶ BatchRun ──▶ CellRunner ──▶ an ordinary session, its checks, its patch
//!  (tasks, variants)             │  ▲                          │
//!                                ▼  │                          ▼
//!                            Coordinator (leases, budget)   DIR/cells ──▶ results, predictions, report
//! ```
//!
//! A cell is a task in a variant. It runs like `architect run`, with the same configuration, journal and resume. Cells
//! run on threads of one process; the coordination lets other processes share the work.

mod batch_run;
mod cell;
mod cell_run;
mod comparison;
pub mod coordination;
pub mod emit;
mod folder;
mod manifest;
mod manifest_file;
mod manifest_schema;
mod manifest_settings;
mod report;
mod results;
mod statistics;
mod stored_sessions;

pub use batch_run::{BatchEvent, BatchObserver, BatchRun, BatchRunError};
pub use cell::{BatchCell, CommonOptions, plain_name};
pub use cell_run::{CellConfig, CellConfigurator, CellSession, log_file_sinks};
pub use comparison::{Comparison, ComparisonOutcome, Winner, WinnerBy, comparison_name};
pub(in crate::workflow) use folder::refuse_link;
pub use folder::{BatchFileError, BatchFolder};
pub(in crate::workflow) use manifest::EntryReader;
pub use manifest::{
    BatchManifest, BatchTask, BatchVariant, ManifestProblem, TaskOptions, TaskWorkspace,
};
pub use manifest_file::ManifestText;
pub(in crate::workflow) use manifest_file::{ManifestEntry, read_entries};
pub use manifest_schema::manifest_schema;
pub use report::BatchReport;
pub use results::{BatchResults, CellFigures, CellRow, CellStatus, ChangeEvaluation};
pub use statistics::Estimate;
pub use stored_sessions::StoredSessions;
