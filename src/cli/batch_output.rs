//! The output of a batch.

use std::sync::atomic::{AtomicUsize, Ordering};

use architect::app::RunInterrupts;
use architect::types::{Language, Signal};
use architect::view::human::BatchTable;
use architect::view::{jsonl, sanitize};
use architect::workflow::batch::{BatchCell, BatchEvent, BatchObserver, CellRow};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::OutputFormat;
use super::error::CliError;
use super::{logging, output};

/// Prints a line, or an event, for each cell.
pub(crate) struct BatchProgress {
    pub(crate) lang: Language,
    pub(crate) format: OutputFormat,
    pub(crate) is_quiet: bool,
    pub(crate) is_verbose: bool,
    pub(crate) cells: usize,
    /// The number of finished cells.
    pub(crate) finished: AtomicUsize,
    pub(crate) interrupts: RunInterrupts,
    pub(crate) table: Option<BatchTable>,
}

/// The maximum length of an error in a line, in characters.
const MAX_ERROR_CHARS: usize = 200;

impl BatchProgress {
    /// Prints the begin of the batch.
    pub(crate) fn begin(&self, folder: &str) {
        let finished = self.finished.load(Ordering::Relaxed);
        self.event(
            "batch_start",
            json!({"cells": self.cells, "finished": finished, "folder": folder}),
        );
        if finished > 0 {
            let cells = self.cells;
            self.line(&self.lang.pick([
                format!("{finished} of {cells} cells are finished"),
                format!("{finished} de {cells} celdas están terminadas"),
            ]));
        }
    }

    fn line(&self, text: &str) {
        let is_written = || {
            let table = self.table.as_ref().map(BatchTable::pause_drawing);
            table.is_some_and(|table| table.write_lines(format!("{text}\n")))
        };
        if !self.is_quiet && !is_written() {
            output::print_stderr(text);
        }
    }

    /// Erases the table, if there is one.
    pub(crate) fn finish(self) {
        let Some(table) = self.table else { return };
        logging::write_through(None);
        if let Err(error) = table.finish() {
            log::debug!("the log on the terminal is incomplete: {error}");
        }
    }

    /// Removes the row of a cell from the table.
    fn end_row(&self, cell: &BatchCell) {
        if let Some(table) = &self.table {
            table.cells().end(&cell.label());
        }
    }

    fn event(&self, name: &str, mut event: Value) {
        if self.format != OutputFormat::StreamJson {
            return;
        }
        event["type"] = json!(name);
        event["ts"] = json!(Timestamp::now().to_string());
        let line = jsonl::to_line(&event).unwrap_or_default();
        if let Err(error) = output::print(&String::from_utf8_lossy(&line)) {
            let is_pipe = error.code() == Signal::Pipe.exit_code();
            self.interrupts.interrupt(if is_pipe { Signal::Pipe } else { Signal::Terminate });
        }
    }
}

impl BatchObserver for BatchProgress {
    fn on_event(&self, event: BatchEvent<'_>) {
        match event {
            BatchEvent::Began { cell, lease, is_resumed } => {
                if let Some(table) = &self.table {
                    table.cells().begin(&cell.label());
                }
                let (id, variant) = (&cell.task.id, cell.variant_id());
                let session = lease.session.to_string();
                self.event(
                    "cell_start",
                    json!({
                        "id": id, "variant": variant, "session_id": session, "attempt": lease.attempt,
                        "resumed": is_resumed,
                    }),
                );
                if is_resumed || self.is_verbose {
                    let verb = self.lang.pick(match is_resumed {
                        true => ["resumes", "se reanuda"],
                        false => ["begins", "empieza"],
                    });
                    self.line(&format!("· {} {verb}", sanitize::line(&cell.label())));
                }
            }
            BatchEvent::Ended { cell, result } => {
                self.end_row(cell);
                let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
                let row = CellRow::from_result(result);
                self.event("cell_end", json!(row));
                self.line(&format_row(self.lang, &row, finished, self.cells));
            }
            BatchEvent::Stopped { cell } => {
                self.end_row(cell);
                let event = json!({"id": cell.task.id, "variant": cell.variant_id()});
                self.event("cell_stopped", event);
                let rest = self.lang.pick([
                    "stopped; the same command resumes it",
                    "detenida; la misma orden la reanuda",
                ]);
                self.line(&format!("‖ {} {rest}", sanitize::line(&cell.label())));
            }
        }
    }
}

/// Returns a line such as `✓ a/x  success  $0.001200  3.2 s  (12 of 100)`.
fn format_row(lang: Language, row: &CellRow, finished: usize, cells: usize) -> String {
    let [of, no_price, failed_check, evaluation] = lang.pick([
        ["of", "no price", "failed check", "evaluation"],
        ["de", "sin precio", "comprobación fallida", "evaluación"],
    ]);
    let mark = if row.is_success() { "✓" } else { "✗" };
    let cost = row.cost.map_or(no_price.to_owned(), |cost| format!("${cost:.6}"));
    let mut text = format!("{mark} {}  {}", sanitize::line(&row.label()), row.status);
    if !row.is_success() {
        text.push_str(&format!(" ({})", row.stop_reason.as_deref().unwrap_or("not begun")));
    }
    text.push_str(&format!("  {cost}  {:.1} s  ({finished} {of} {cells})", row.duration_seconds));
    for check in &row.checks_failed {
        text.push_str(&format!("\n    {failed_check}: {}", sanitize::line(check)));
    }
    if let Some(found) = &row.change_evaluation {
        text.push_str(&format!("\n    {evaluation}: {}", sanitize::line(&found.explanation())));
    }
    if let Some(error) = &row.error {
        text.push_str(&format!("\n    {}", sanitize::headline(error, MAX_ERROR_CHARS)));
    }
    text
}

/// Prints the result of a batch as a document or as text.
///
/// # Errors
///
/// Fails if standard output can't be written.
pub(crate) fn print_batch_result(
    format: OutputFormat,
    mut document: Value,
    text: impl FnOnce() -> String,
) -> Result<u8, CliError> {
    match format {
        OutputFormat::Text => output::print(&text()),
        OutputFormat::Json => output::print(&document.to_string()),
        OutputFormat::StreamJson => {
            document["type"] = json!("result");
            output::print(&document.to_string())
        }
    }
}
