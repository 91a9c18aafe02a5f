//! The combined result of related runs: a plan and its execution, an answer and its evaluation.

use std::collections::BTreeMap;

use super::changed_files::ChangedFiles;
use super::{RunCosts, RunResult};
use crate::model::{FileChange, MicroUsd, TimeSpan};
use crate::view::public::TokenUsage;

impl RunResult {
    /// Combines the results of consecutive runs: the `speaker` determines the output, and usage and changes are
    /// summed up. `None` if there is no such run.
    pub fn join(runs: &[Self], speaker: usize) -> Option<Self> {
        let mut files = ChangedFiles::default();
        for file in runs.iter().flat_map(|run| &run.files_modified) {
            let (path, action) = (file.path.clone(), file.action);
            files.add(&FileChange { path, action, added: file.added, removed: file.removed });
        }
        let mut usage = TokenUsage::default();
        let mut by_source = BTreeMap::new();
        for run in last_of_each_session(runs) {
            usage += run.usage;
            for (source, cost) in &run.costs.by_source {
                let sum: &mut MicroUsd = by_source.entry(*source).or_default();
                *sum = *sum + *cost;
            }
        }
        let cost =
            last_of_each_session(runs).filter_map(|run| run.cost).reduce(|sum, cost| sum + cost);
        Some(Self {
            steps: last_of_each_session(runs).map(|run| run.steps).sum(),
            llm_calls: last_of_each_session(runs).map(|run| run.llm_calls).sum(),
            duration: TimeSpan(runs.iter().map(|run| run.duration.0).sum()),
            tools_used: runs.iter().flat_map(|run| run.tools_used.clone()).collect(),
            files_modified: files.changed(),
            usage,
            cost,
            costs: RunCosts { total: cost, by_source },
            denied: runs.iter().flat_map(|run| run.denied.clone()).collect(),
            ..runs.get(speaker)?.clone()
        })
    }
}

/// Returns the newest run of each session, which includes the usage of those before it.
fn last_of_each_session(runs: &[RunResult]) -> impl Iterator<Item = &RunResult> {
    let is_newest = |index: usize, run: &RunResult| {
        runs.iter().skip(index + 1).all(|later| later.session_id != run.session_id)
    };
    runs.iter().enumerate().filter(move |(index, run)| is_newest(*index, run)).map(|(_, run)| run)
}
