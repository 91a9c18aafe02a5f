//! Statistics over the stored sessions.

use serde::Deserialize;

use super::error::AppError;
use crate::journal::index::StatisticsTable;
use crate::journal::{SessionIndex, SessionStore};
use crate::view::stats::Statistics;

/// The number of sessions of a kind.
#[derive(Deserialize)]
struct KindCount {
    kind: String,
    sessions: u64,
}

/// Returns statistics over the sessions of a store that were created since this time, in RFC 3339 or as a date.
///
/// # Errors
///
/// Fails if the store can't be listed, or its index fails.
pub fn session_statistics(
    store: &SessionStore,
    since: Option<String>,
) -> Result<Statistics, AppError> {
    let mut index = SessionIndex::open(store)?;
    let from = since.clone().unwrap_or_default();
    let kinds: Vec<KindCount> = index.statistics(StatisticsTable::Kinds, &from)?;
    let count = |name| kinds.iter().find(|kind| kind.kind == name).map_or(0, |kind| kind.sessions);
    let statistics = Statistics {
        since,
        sessions: count("session"),
        subagents: count("subagent"),
        evaluations: count("eval"),
        outcomes: index.statistics(StatisticsTable::Outcomes, &from)?,
        states: index.statistics(StatisticsTable::States, &from)?,
        models: index.statistics(StatisticsTable::Models, &from)?,
        step_costs: index.statistics(StatisticsTable::Steps, &from)?,
        tools: index.statistics(StatisticsTable::Tools, &from)?,
        failures: index.statistics(StatisticsTable::Failures, &from)?,
        percentiles: index.statistics(StatisticsTable::Percentiles, &from)?,
        ..Statistics::default()
    };
    Ok(statistics.with_totals())
}
