//! What is left of the limits of a workflow, after its runs so far.

use crate::config::{Config, LimitSettings};
use crate::machine::Fold;
use crate::model::{Span, Tokens};

/// Returns the configuration for the next run of a workflow, after these runs: they share money, tokens and time.
pub(super) fn rest<'a>(config: &Config, runs: impl IntoIterator<Item = &'a Fold>) -> Config {
    let mut config = config.clone();
    let limits =
        runs.into_iter().fold(config.settings.limits.clone(), |limits, fold| after(&limits, fold));
    config.settings.limits = limits;
    config
}

fn after(limits: &LimitSettings, fold: &Fold) -> LimitSettings {
    let run = fold.state.run();
    let (spent, took) = (run.spent, run.now.since(run.began));
    LimitSettings {
        budget_usd: limits.budget_usd.map(|budget| budget.minus(spent.cost)),
        max_tokens: limits.max_tokens.map(|most| Tokens(most.0.saturating_sub(spent.tokens.0))),
        timeout: limits.timeout.map(|timeout| Span(timeout.0.saturating_sub(took.0))),
        ..limits.clone()
    }
}
