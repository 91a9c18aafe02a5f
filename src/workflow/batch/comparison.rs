//! The comparison of one task's variants.

use std::cmp::Ordering;

use serde::Serialize;
use serde_json::json;

use super::cell::{CommonOptions, plain_name};
use super::manifest::BatchTask;
use super::results::{CellRow, ChangeEvaluation};
use crate::types::Sha256Digest;

/// A comparison of one task's variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The commit from which all variants began.
    pub commit: String,
    /// The outcome.
    pub outcome: ComparisonOutcome,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComparisonOutcome {
    /// A variant has won.
    Winner(Winner),
    /// No variant succeeded.
    NoSuccess,
    /// Some variants succeeded, but the evaluating model gave no evaluation of any of them.
    NoEvaluation,
    /// The comparison was interrupted, and can be resumed.
    Interrupted,
}

/// The best variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Winner {
    /// The id of the variant.
    pub variant: String,
    /// The branch with its changes; `None` without changes.
    pub branch: Option<String>,
    /// The file with its changes as a patch; `None` without changes.
    pub patch_file: Option<String>,
    /// The criterion that decided.
    pub by: WinnerBy,
}

/// The criterion that decided between the winner and the next best variant, in order of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WinnerBy {
    /// No other variant succeeded. Success needs all checks to pass and, with a self-evaluation, a satisfied evaluator.
    Success,
    /// Its changes have the better evaluation. A missing evaluation ranks between the two answers.
    Evaluation,
    /// The others changed nothing.
    Changes,
    /// It costs less. An unknown cost ranks as the highest.
    Cost,
    /// It changes fewer lines or, with as many lines, fewer files.
    Size,
    /// It comes first in the manifest.
    Order,
}

impl WinnerBy {
    fn describe(self) -> &'static str {
        match self {
            Self::Success => "the only one that succeeded",
            Self::Evaluation => "the best evaluation",
            Self::Changes => "the only one that changed something",
            Self::Cost => "the lowest cost",
            Self::Size => "the smallest change",
            Self::Order => "the first of equals",
        }
    }
}

impl Comparison {
    /// Chooses the winner among variants that began from `commit`.
    pub fn new(commit: String, rows: &[CellRow]) -> Self {
        let mut best: Vec<&CellRow> = rows.iter().filter(|row| row.is_success()).collect();
        let is_refused = |row: &&CellRow| {
            row.change_evaluation.as_ref().is_some_and(|it| it.evaluation.is_none())
        };
        if !best.is_empty() && best.iter().all(is_refused) {
            return Self { commit, outcome: ComparisonOutcome::NoEvaluation };
        }
        // The sort is stable, so equal variants keep their order.
        best.sort_by(|one, other| rank(one, other).1);
        let winner = best.first().map(|first| Winner {
            variant: first.variant.clone().unwrap_or_default(),
            branch: first.branch.clone(),
            patch_file: first.patch_file.clone(),
            by: best.get(1).map_or(WinnerBy::Success, |second| rank(first, second).0),
        });
        let outcome = winner.map_or(ComparisonOutcome::NoSuccess, ComparisonOutcome::Winner);
        Self { commit, outcome }
    }

    /// Returns the winner, if there is one.
    pub fn winner(&self) -> Option<&Winner> {
        match &self.outcome {
            ComparisonOutcome::Winner(winner) => Some(winner),
            ComparisonOutcome::NoSuccess
            | ComparisonOutcome::NoEvaluation
            | ComparisonOutcome::Interrupted => None,
        }
    }

    /// Returns the winner and the deciding criterion as text.
    pub fn winner_text(&self) -> String {
        match &self.outcome {
            ComparisonOutcome::Winner(Winner { variant, by, .. }) => {
                format!("{variant} ({})", by.describe())
            }
            ComparisonOutcome::NoSuccess => "none, no variant succeeded".to_owned(),
            ComparisonOutcome::NoEvaluation => {
                "none, no change could be evaluated; without --judge the lowest cost decides"
                    .to_owned()
            }
            ComparisonOutcome::Interrupted => "none yet, the same command continues".to_owned(),
        }
    }
}

/// Compares two successful variants, and returns the criterion that decides. The better one is less.
fn rank(one: &CellRow, other: &CellRow) -> (WinnerBy, Ordering) {
    let is_unchanged = |row: &CellRow| row.patch_file.is_none();
    let cost = |row: &CellRow| row.cost.unwrap_or(f64::INFINITY);
    let size = |row: &CellRow| {
        let lines = row.lines_added.unwrap_or(0) + row.lines_removed.unwrap_or(0);
        (lines, row.files_changed.unwrap_or(0))
    };
    let score = |row: &CellRow| row.change_evaluation.as_ref().map_or(0.0, ChangeEvaluation::score);
    let orders = [
        (WinnerBy::Evaluation, score(other).total_cmp(&score(one))),
        (WinnerBy::Changes, is_unchanged(one).cmp(&is_unchanged(other))),
        (WinnerBy::Cost, cost(one).total_cmp(&cost(other))),
        (WinnerBy::Size, size(one).cmp(&size(other))),
    ];
    let decisive = orders.into_iter().find(|(_, order)| order.is_ne());
    decisive.unwrap_or((WinnerBy::Order, Ordering::Equal))
}

/// Number of hash digits in the name of a comparison.
const HASH_DIGITS: usize = 8;

/// Returns the name for comparisons of a task: readable, and the same for the same task and options.
pub fn comparison_name(task: &BatchTask, common: &CommonOptions) -> String {
    let CommonOptions { agent, workspace, sets, others } = common;
    let definition = json!([task.prompt, task.setup, task.checks, agent, workspace, sets, others]);
    let hash = Sha256Digest::of(definition.to_string().as_bytes()).to_string();
    let title = task.prompt.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    format!("{}-{}", plain_name(title.trim()), &hash[..HASH_DIGITS])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the row of a variant with this many changed lines.
    fn row(variant: &str, exit_code: u64, cost: &Value, lines: u64) -> CellRow {
        CellRow::from_result(&json!({
            "id": "compare", "variant": variant, "status": "", "exit_code": exit_code, "cost": cost,
            "patch_file": (lines > 0).then_some("p"),
            "worktree": {"branch": format!("b/{variant}"), "kept": lines > 0, "files_changed": 1, "lines_added": lines},
        }))
    }

    #[track_caller]
    fn check(rows: &[CellRow], expected: Option<(&str, WinnerBy)>) {
        let comparison = Comparison::new(String::new(), rows);
        let winner = comparison.winner().map(|winner| (&*winner.variant, winner.by));
        assert_eq!(winner, expected);
    }

    #[test]
    fn an_evaluation_decides_before_the_cost() {
        let evaluated = |variant: &str, cost: f64, evaluation: Value| {
            let mut row = row(variant, 0, &json!(cost), 1);
            let document = json!({"change_evaluation": evaluation});
            row.change_evaluation = CellRow::from_result(&document).change_evaluation;
            assert_eq!(row.change_evaluation.is_some(), !evaluation.is_null());
            row
        };
        let answer = |completed: bool, confidence: f64| json!({"session_id": "s", "cost": 0.1, "completed": completed, "confidence": confidence, "error": null});
        let sure = evaluated("sure", 0.9, answer(true, 0.9));
        let unsure = evaluated("unsure", 0.3, answer(true, 0.5));
        let also = evaluated("also", 0.2, answer(true, 0.5));
        let failed = evaluated(
            "failed",
            0.2,
            json!({"session_id": "s", "cost": null, "error": "no answer"}),
        );
        let doubtful = evaluated("doubtful", 0.2, answer(false, 0.2));
        let wrong = evaluated("wrong", 0.1, answer(false, 0.9));
        check(&[wrong.clone(), unsure.clone(), sure.clone()], Some(("sure", WinnerBy::Evaluation)));
        check(&[wrong.clone(), doubtful.clone()], Some(("doubtful", WinnerBy::Evaluation)));
        check(&[doubtful, failed.clone()], Some(("failed", WinnerBy::Evaluation)));
        // If the model evaluated none of them, there is no winner.
        check(&[failed.clone(), failed.clone()], None);
        check(&[failed, unsure.clone()], Some(("unsure", WinnerBy::Evaluation)));
        check(&[unsure, also], Some(("also", WinnerBy::Cost)));
        let checked = row("checked", 2, &json!(0.1), 1);
        check(&[checked, wrong], Some(("wrong", WinnerBy::Success)));
    }

    #[test]
    fn the_order_is_success_changes_cost_size_and_place() {
        let cost = |dollars: f64| json!(dollars);
        let failed = row("failed", 2, &cost(0.1), 1);
        let idle = row("idle", 0, &cost(0.1), 0);
        let dear = row("dear", 0, &cost(0.3), 1);
        let long = row("long", 0, &cost(0.2), 9);
        let short = row("short", 0, &cost(0.2), 8);
        let same = row("same", 0, &cost(0.2), 8);
        let unknown = row("unknown", 0, &Value::Null, 1);
        check(std::slice::from_ref(&failed), None);
        check(&[failed.clone(), idle.clone()], Some(("idle", WinnerBy::Success)));
        check(&[failed, idle, dear.clone()], Some(("dear", WinnerBy::Changes)));
        check(&[unknown, dear.clone()], Some(("dear", WinnerBy::Cost)));
        check(&[dear.clone(), long.clone()], Some(("long", WinnerBy::Cost)));
        check(&[dear, long, short.clone()], Some(("short", WinnerBy::Size)));
        check(&[short, same], Some(("short", WinnerBy::Order)));
    }
}
