//! The results of a batch: `results.jsonl`, `predictions.jsonl`, and the rows of the report.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cell::BatchCell;
use super::coordination::Coordinator;
use super::folder::{BatchFileError, BatchFolder, PATCHES};
use super::manifest::TaskWorkspace;
use crate::types::{pluralize, word_enum};
use crate::view::{RunResult, jsonl, sanitize};
use crate::workflow::self_eval::Evaluation;
use crate::workspace::IoContext;

/// Key of the changes' evaluation in a result.
pub(super) const CHANGE_EVALUATION: &str = "change_evaluation";

/// The evaluation of a cell's changes by another model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeEvaluation {
    /// The id of its session.
    pub session_id: String,
    /// Its cost in dollars, not included in the cost of the cell; null if it is unknown.
    pub cost: Option<f64>,
    /// The evaluation; `None` if the model did not give one.
    #[serde(flatten)]
    pub evaluation: Option<Evaluation>,
    /// The reason why there is no evaluation.
    pub error: Option<String>,
}

impl ChangeEvaluation {
    /// Reads the evaluation in a result; `None` without one.
    fn read(result: &Value) -> Option<Self> {
        Self::deserialize(&result[CHANGE_EVALUATION]).ok()
    }

    /// Returns the score of the changes: from -1, certainly not completed, to 1, certainly completed; 0 without
    /// evaluation.
    pub fn score(&self) -> f64 {
        match &self.evaluation {
            Some(Evaluation { completed: true, confidence, .. }) => *confidence,
            Some(Evaluation { completed: false, confidence, .. }) => -confidence,
            None => 0.0,
        }
    }

    /// Returns the outcome as text.
    pub fn text(&self) -> String {
        match &self.evaluation {
            Some(one) if one.completed => format!("completed ({:.2})", one.confidence),
            Some(one) => format!("not completed ({:.2})", one.confidence),
            None => "failed".to_owned(),
        }
    }

    /// Returns the outcome as text, with its reasons.
    pub fn explanation(&self) -> String {
        let issues = self.evaluation.iter().flat_map(|evaluation| &evaluation.issues);
        let reasons: Vec<&str> = issues.chain(&self.error).map(String::as_str).collect();
        match reasons.is_empty() {
            true => self.text(),
            false => sanitize::headline(&format!("{}: {}", self.text(), reasons.join("; ")), 120),
        }
    }
}

/// The result of a cell, as reports show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellRow {
    /// The id of the task.
    pub id: String,
    /// The id of the variant; null without variants.
    pub variant: Option<String>,
    /// The status of the run; `unfinished` if the run has not ended.
    pub status: String,
    /// The stop reason of the run.
    pub stop_reason: Option<String>,
    /// The exit code of the run; null if the run has not ended.
    pub exit_code: Option<u64>,
    /// Number of passed checks.
    pub checks_passed: usize,
    /// The checks that failed.
    pub checks_failed: Vec<String>,
    /// The cost in dollars; null if it is unknown.
    pub cost: Option<f64>,
    /// Duration of the run.
    pub duration_seconds: f64,
    /// Input and output tokens.
    pub tokens: u64,
    /// The id of the session.
    pub session_id: Option<String>,
    /// The branch of the worktree; null without a worktree, and if nothing in it was changed.
    pub branch: Option<String>,
    /// The file with the changes of the run as a patch; null without a worktree, and without changes.
    pub patch_file: Option<String>,
    /// Number of files that differ from the first commit of the worktree; null without a worktree.
    pub files_changed: Option<u64>,
    /// Number of added lines.
    pub lines_added: Option<u64>,
    /// Number of removed lines.
    pub lines_removed: Option<u64>,
    /// Number of denied tool calls.
    pub denied_calls: usize,
    /// The error of the run.
    pub error: Option<String>,
    /// The evaluation of the changes; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_evaluation: Option<ChangeEvaluation>,
}

/// The status of a cell that has not ended.
const UNFINISHED: &str = CellStatus::Unfinished.as_str();

impl CellRow {
    /// Returns the row for a result.
    pub fn from_result(result: &Value) -> Self {
        let text = |key: &str| result[key].as_str().map(str::to_owned);
        let checks = result["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_passed = |check: &&Value| check["passed"] == true;
        let failed = checks.iter().filter(|check| !is_passed(check));
        let tokens = |key: &str| result["usage"][key].as_u64().unwrap_or_default();
        let worktree = &result["worktree"];
        let branch = worktree["branch"].as_str().filter(|_| worktree["kept"] == true);
        Self {
            id: text("id").unwrap_or_default(),
            variant: text("variant"),
            status: text("status").unwrap_or_default(),
            stop_reason: text("stop_reason"),
            exit_code: result["exit_code"].as_u64(),
            checks_passed: checks.iter().filter(is_passed).count(),
            checks_failed: failed
                .filter_map(|check| check["name"].as_str())
                .map(str::to_owned)
                .collect(),
            cost: result["cost"].as_f64(),
            duration_seconds: result["duration_seconds"].as_f64().unwrap_or_default(),
            tokens: tokens("input_tokens") + tokens("output_tokens"),
            session_id: text("session_id"),
            branch: branch.map(str::to_owned),
            patch_file: text("patch_file"),
            files_changed: worktree["files_changed"].as_u64(),
            lines_added: worktree["lines_added"].as_u64(),
            lines_removed: worktree["lines_removed"].as_u64(),
            denied_calls: result["denied"].as_array().map_or(0, Vec::len),
            error: text("error"),
            change_evaluation: ChangeEvaluation::read(result),
        }
    }

    fn unfinished(cell: &BatchCell) -> Self {
        let row = Self::from_result(&Value::Null);
        let (id, variant) = (cell.task.id.clone(), cell.variant_id().map(str::to_owned));
        Self { id, variant, status: UNFINISHED.to_owned(), ..row }
    }

    /// Returns whether the cell has ended.
    pub fn is_finished(&self) -> bool {
        self.status != UNFINISHED
    }

    /// Returns whether the cell succeeded.
    pub fn is_success(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Returns the size of the changes in the worktree as text; `None` without a worktree.
    pub fn changes_text(&self) -> Option<String> {
        let lines = |count: Option<u64>| count.unwrap_or_default();
        let (added, removed) = (lines(self.lines_added), lines(self.lines_removed));
        Some(match usize::try_from(self.files_changed?).unwrap_or(usize::MAX) {
            0 => "none".to_owned(),
            files => format!("{} +{added} -{removed}", pluralize(files, "file", "files")),
        })
    }

    /// Returns the readable name.
    pub fn label(&self) -> String {
        match &self.variant {
            Some(variant) => format!("{}/{variant}", self.id),
            None => self.id.clone(),
        }
    }
}

/// Returns the result document of a cell right after its run: without checks, patch and worktree.
pub(super) fn cell_document(result: &RunResult, cell: &BatchCell) -> Value {
    // All values can be serialized to JSON.
    let mut document = serde_json::to_value(result).unwrap_or_else(|_| json!({}));
    document["id"] = json!(cell.task.id);
    document["variant"] = json!(cell.variant_id());
    document["patch_file"] = Value::Null;
    document
}

/// Returns the result document of a cell that failed before it had another one.
pub(super) fn failed_cell(result: &RunResult, cell: &BatchCell) -> Value {
    let mut document = cell_document(result, cell);
    document["checks"] = json!([]);
    document
}

/// Returns a result document for a cell that has lost its own.
pub(super) fn lost_result(cell: &BatchCell, why: &str) -> Value {
    failed_cell(&RunResult { exit_code: 1, ..RunResult::not_started(why) }, cell)
}

/// The figures of a cell that are used in computations. The [`CellRow`] has everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellFigures {
    /// The status.
    pub status: CellStatus,
    /// Number of passed checks.
    pub checks_passed: usize,
    /// Number of failed checks.
    pub checks_failed: usize,
    /// The cost in dollars; `None` if it is unknown.
    pub cost: Option<f64>,
    /// Duration of the run.
    pub duration_seconds: f64,
    /// Input and output tokens.
    pub tokens: u64,
    /// Whether the changes were evaluated.
    pub is_evaluated: bool,
    /// Number of denied tool calls.
    pub denied_calls: usize,
}

word_enum! {
    /// The status of a cell.
    pub enum CellStatus {
        /// Success.
        Success = "success",
        /// An incomplete result.
        Partial = "partial",
        /// A failure.
        Failed = "failed",
        /// Not ended yet.
        Unfinished = "unfinished",
    }
}

impl From<&CellRow> for CellFigures {
    fn from(row: &CellRow) -> Self {
        let status = match row.status.as_str() {
            _ if row.is_success() => CellStatus::Success,
            UNFINISHED => CellStatus::Unfinished,
            "failed" => CellStatus::Failed,
            _ => CellStatus::Partial,
        };
        Self {
            status,
            checks_passed: row.checks_passed,
            checks_failed: row.checks_failed.len(),
            cost: row.cost,
            duration_seconds: row.duration_seconds,
            tokens: row.tokens,
            is_evaluated: row.change_evaluation.is_some(),
            denied_calls: row.denied_calls,
        }
    }
}

/// The results of a batch. Since there may be many thousands of cells, only the figures are in memory, the rest in a
/// file.
#[derive(Debug)]
pub struct BatchResults {
    /// The cells, in the order of the manifest.
    pub cells: Vec<BatchCell>,
    /// The figures of each cell.
    pub figures: Vec<CellFigures>,
    /// The file with a line for each cell that has ended, in the same order.
    file: File,
    /// The path at which the file was written.
    path: PathBuf,
}

impl BatchResults {
    /// Writes the results of the cells that have ended, and the predictions for cells with a repository.
    ///
    /// # Errors
    ///
    /// Fails if a file can't be written. The old file is unchanged then.
    pub fn write(
        folder: &BatchFolder,
        coordinator: &Coordinator,
        cells: Vec<BatchCell>,
    ) -> Result<Self, BatchFileError> {
        let is_repository =
            |cell: &BatchCell| matches!(cell.task.workspace, TaskWorkspace::Repository { .. });
        let mut figures = Vec::with_capacity(cells.len());
        let path = folder.path().join("results.jsonl");
        let file = folder.write_parts(&path, |results| {
            for cell in &cells {
                let Some((_, session)) = coordinator.outcome(&cell.id) else {
                    figures.push(CellFigures::from(&CellRow::unfinished(cell)));
                    continue;
                };
                let stored = folder.read_result(session);
                let result = stored.unwrap_or_else(|| lost_result(cell, "the result is lost"));
                figures.push(CellFigures::from(&CellRow::from_result(&result)));
                write_line(results, &result)?;
            }
            Ok(())
        })?;
        if cells.iter().any(is_repository) {
            folder.write_parts(&folder.path().join("predictions.jsonl"), |predictions| {
                for cell in cells.iter().filter(|cell| is_repository(cell)) {
                    let Some((_, session)) = coordinator.outcome(&cell.id) else { continue };
                    let Some(result) = folder.read_result(session) else { continue };
                    write_line(predictions, &prediction(folder, cell, &result)?)?;
                }
                Ok(())
            })?;
        }
        Ok(Self { cells, figures, file, path })
    }

    /// Reads the rows of all cells at once, for a small number of cells.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read.
    pub fn read_rows(&self) -> Result<Vec<CellRow>, BatchFileError> {
        Ok(self.rows().collect::<io::Result<_>>().io_context("read", &self.path)?)
    }

    /// Returns an iterator that reads the row of each cell.
    pub fn rows(&self) -> impl Iterator<Item = io::Result<CellRow>> {
        let start = (&self.file).rewind();
        let mut start = Some(start);
        let (mut lines, mut line) = (BufReader::new(&self.file), String::new());
        self.cells.iter().zip(&self.figures).map(move |(cell, figures)| {
            start.take().unwrap_or(Ok(()))?;
            if figures.status == CellStatus::Unfinished {
                return Ok(CellRow::unfinished(cell));
            }
            line.clear();
            lines.read_line(&mut line)?;
            Ok(CellRow::from_result(&serde_json::from_str(&line)?))
        })
    }
}

/// Returns a prediction in the format of SWE-bench. The folder may have been moved since the patch was written.
fn prediction(folder: &BatchFolder, cell: &BatchCell, result: &Value) -> io::Result<Value> {
    let file = result["patch_file"].as_str().and_then(|path| Path::new(path).file_name());
    let patch = file.map(|name| fs::read(folder.path().join(PATCHES).join(name))).transpose()?;
    let model = match cell.variant_id() {
        Some(variant) => json!(variant),
        None => result["model"].clone(),
    };
    Ok(json!({
        "instance_id": cell.task.id,
        "model_name_or_path": model,
        "model_patch": String::from_utf8_lossy(&patch.unwrap_or_default()),
    }))
}

fn write_line(to: &mut impl Write, value: &Value) -> io::Result<()> {
    to.write_all(&jsonl::to_line(value)?)
}

#[cfg(test)]
impl BatchResults {
    /// Returns results for these documents, with the tasks and variants that they name.
    pub(super) fn from_documents(documents: &[Value]) -> Self {
        use super::manifest::BatchManifest;
        use super::manifest_file::ManifestText;
        let cell = |document: &Value| {
            let entry = |key: &str| format!("{{\"id\": {}, \"prompt\": \"x\"}}", document[key]);
            let [task, variant] = ["id", "variant"].map(entry);
            let [task, variant] =
                [&task, &variant].map(|text| ManifestText { name: "t.jsonl", text });
            let (manifest, _) = BatchManifest::parse(task, Some(variant), Path::new("/"));
            BatchCell::all(manifest, &super::cell::CommonOptions::default()).remove(0)
        };
        let mut file = tempfile::tempfile().unwrap();
        documents.iter().for_each(|document| write_line(&mut file, document).unwrap());
        let figures = documents.iter().map(|one| CellFigures::from(&CellRow::from_result(one)));
        let (cells, figures) = (documents.iter().map(cell).collect(), figures.collect());
        Self { cells, figures, file, path: PathBuf::new() }
    }
}
