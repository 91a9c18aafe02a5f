//! Usage of a workflow's sessions in earlier processes, for its result.

use std::collections::HashSet;
use std::sync::Arc;

use super::history::WorkflowHistory;
use super::parallel_items::batch_path;
use crate::app::usage_before;
use crate::journal::{JournalError, SessionHistory, SessionStore};
use crate::machine::StopReason;
use crate::types::Durability;
use crate::view::result::RunResultBuilder;
use crate::view::{CostSource, RunInfo, RunResult};

/// Returns results with the usage of a workflow's stored sessions that are not in `results`: sessions of iterations, of
/// parallel items, and of evaluations. Calls of sub-agents count in the session that dispatched them.
///
/// # Errors
///
/// Fails if a store can't be read.
pub fn earlier_results(
    store: &SessionStore,
    history: &WorkflowHistory,
    info: &RunInfo,
    results: &[RunResult],
) -> Result<Vec<RunResult>, JournalError> {
    let known: HashSet<&str> = results.iter().filter_map(|it| it.session_id.as_deref()).collect();
    let batches = history.iterations.iter().map(|it| batch_path(store, it.session));
    let batches = batches.filter(|path| path.is_dir());
    let batches = batches.map(|path| SessionStore::open(&path, Durability::Os));
    let stores = batches.collect::<Result<Vec<_>, _>>()?;
    let mut earlier = Vec::new();
    for store in std::iter::once(store).chain(&stores) {
        for listed in store.list()? {
            if known.contains(&*listed.session.to_string()) {
                continue;
            }
            // A session without a header has sent nothing.
            let Ok((history, _)) = store.replay(listed.session, |_, _, _| {}) else { continue };
            let cost_source = match &history.header.dispatched_by {
                Some(call) if call.is_evaluation() => CostSource::Eval,
                Some(_) => continue,
                None => CostSource::Agent,
            };
            earlier.push(counted_result(&history, cost_source, info));
        }
    }
    Ok(earlier)
}

/// Returns a result with the usage of a stored session.
pub fn counted_result(history: &SessionHistory, source: CostSource, info: &RunInfo) -> RunResult {
    let session_id = history.header.session.to_string().into();
    let (prior_usage, prior_models) = usage_before(history);
    let info =
        RunInfo { session_id, cost_source: source, prior_usage, prior_models, ..info.clone() };
    RunResultBuilder::new(Arc::new(info)).result((StopReason::InternalError, ""))
}
