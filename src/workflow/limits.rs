//! What is left of the limits of a workflow, after its runs so far.

use crate::app::Ended;
use crate::config::{Config, LimitSettings};
use crate::journal::SessionId;
use crate::model::{Span, Tokens};

/// Returns the configuration for the next run of a workflow, after these runs: they share money, tokens and time.
///
/// A run that goes on in the session of some of them has their account already, so what they spent stays in its limits.
pub(super) fn rest<'a>(
    config: &Config,
    runs: impl IntoIterator<Item = &'a Ended>,
    goes_on: Option<SessionId>,
) -> Config {
    let runs: Vec<&Ended> = runs.into_iter().collect();
    let mut config = config.clone();
    let limits = &mut config.settings.limits;
    for (index, run) in runs.iter().enumerate() {
        take_time(limits, run);
        let is_newest = runs[index + 1..].iter().all(|later| later.session != run.session);
        if is_newest && Some(run.session) != goes_on {
            take_spent(limits, run);
        }
    }
    config
}

fn take_time(limits: &mut LimitSettings, ended: &Ended) {
    let run = ended.fold.state.run();
    let took = run.now.since(run.began);
    limits.timeout = limits.timeout.map(|timeout| Span(timeout.0.saturating_sub(took.0)));
}

/// The account of a run has all that its session has spent.
fn take_spent(limits: &mut LimitSettings, ended: &Ended) {
    let spent = ended.fold.state.run().spent;
    limits.budget_usd = limits.budget_usd.map(|budget| budget.minus(spent.cost));
    limits.max_tokens = limits.max_tokens.map(|most| Tokens(most.0.saturating_sub(spent.tokens.0)));
}
