//! The remaining limits of a workflow after some of its runs.

use crate::app::FinishedRun;
use crate::config::{Config, LimitsConfig};
use crate::journal::SessionId;
use crate::model::{TimeSpan, Tokens};

/// Returns the configuration for the next run of a workflow, after these runs: they share money, tokens and time.
///
/// A run that continues the session of some of them has their usage already, so it is not subtracted twice.
pub(super) fn remaining_config<'a>(
    config: &Config,
    runs: impl IntoIterator<Item = &'a FinishedRun>,
    goes_on: Option<SessionId>,
) -> Config {
    let runs: Vec<&FinishedRun> = runs.into_iter().collect();
    let mut config = config.clone();
    let limits = &mut config.settings.limits;
    for (index, run) in runs.iter().enumerate() {
        subtract_time(limits, run);
        let is_newest = runs[index + 1..].iter().all(|later| later.session != run.session);
        if is_newest && Some(run.session) != goes_on {
            subtract_usage(limits, run);
        }
    }
    config
}

fn subtract_time(limits: &mut LimitsConfig, ended: &FinishedRun) {
    let run = ended.machine.state.run();
    let took = run.now.since(run.started_at);
    limits.timeout = limits.timeout.map(|timeout| TimeSpan(timeout.0.saturating_sub(took.0)));
}

/// The usage of a run includes the earlier runs of its session.
fn subtract_usage(limits: &mut LimitsConfig, ended: &FinishedRun) {
    let spent = ended.machine.state.run().used;
    limits.budget_usd = limits.budget_usd.map(|budget| budget.saturating_sub(spent.cost));
    limits.max_tokens = limits.max_tokens.map(|most| Tokens(most.0.saturating_sub(spent.tokens.0)));
}
