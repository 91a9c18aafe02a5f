//! The remaining limits of a workflow after some of its runs.

use super::batch::coordination::Charge;
use crate::app::FinishedRun;
use crate::config::{Config, LimitsConfig};
use crate::journal::SessionId;
use crate::machine::BudgetUsage;
use crate::types::TimeSpan;

/// Subtracts a spent charge from limits.
pub fn subtract_charge(limits: &mut LimitsConfig, spent: Charge) {
    limits.budget_usd = limits.budget_usd.map(|budget| budget.saturating_sub(spent.money));
    limits.max_tokens = limits.max_tokens.map(|most| most.saturating_sub(spent.tokens));
}

/// Returns the configuration for the next run of a workflow, after `runs`: they share money, tokens and time.
///
/// If the next run continues the session of some of these runs, it includes their usage, which is not subtracted twice.
pub(super) fn remaining_config(
    config: &Config,
    runs: &[FinishedRun],
    continued: Option<SessionId>,
) -> Config {
    let mut config = config.clone();
    let limits = &mut config.settings.limits;
    for (index, finished) in runs.iter().enumerate() {
        let run = finished.machine.state.run();
        let took = run.now.since(run.started_at);
        limits.timeout = limits.timeout.map(|timeout| TimeSpan(timeout.0.saturating_sub(took.0)));
        // The usage of a run includes the earlier runs of its session.
        let is_newest = runs[index + 1..].iter().all(|later| later.session != finished.session);
        if is_newest && Some(finished.session) != continued {
            let BudgetUsage { cost, tokens } = run.used;
            subtract_charge(limits, Charge { money: cost, tokens });
        }
    }
    config
}
