//! The budget share of a tool call that makes model calls of its own.

use serde::{Deserialize, Serialize};

use crate::machine::budget::CLOSING_SHARE;
use crate::machine::run_context::{BudgetUsage, RunContext};
use crate::types::{MicroUsd, TimeSpan, Tokens};

/// The limits of a call that makes model calls of its own.
///
/// A share is at most half of the remaining limits, so that the run can use the result, and concurrent calls get a
/// share, too. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BudgetShare {
    /// The maximum cost.
    pub cost: Option<MicroUsd>,
    /// The maximum number of input and output tokens.
    pub tokens: Option<Tokens>,
    /// The maximum time from the start of the call.
    pub time: Option<TimeSpan>,
}

impl BudgetShare {
    /// Returns the share of a call that starts now, in addition to the shares of other running calls.
    pub(crate) fn new(run: &RunContext, others: impl Iterator<Item = Self>) -> Self {
        let limits = &run.rules.limits;
        let (mut cost, mut tokens) = (run.used.cost, run.used.tokens);
        for other in others {
            cost = cost + other.cost.unwrap_or_default();
            tokens = tokens + other.tokens.unwrap_or_default();
        }
        let free = |limit: u64, used: u64| {
            let closing = limit.div_ceil(CLOSING_SHARE);
            limit.saturating_sub(used).saturating_sub(closing) / 2
        };
        // Without a price, the cost isn't counted.
        let budget = limits.budget.filter(|_| run.rules.price.is_some());
        Self {
            cost: budget.map(|limit| MicroUsd(free(limit.0, cost.0))),
            tokens: limits.max_tokens.map(|limit| Tokens(free(limit.0, tokens.0))),
            time: run.closing_time().map(|at| at.since(run.now)),
        }
    }

    /// Returns the remaining share after this usage.
    pub(crate) fn after_usage(self, used: BudgetUsage) -> Self {
        Self {
            cost: self.cost.map(|cost| cost.saturating_sub(used.cost)),
            tokens: self.tokens.map(|tokens| tokens.saturating_sub(used.tokens)),
            time: self.time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Price, RunLimits, RunRules, RunTime};

    const PRICE: Price =
        Price { input: 1, output: 1, cached_input: 0, cache_write: 0, long_input: None };

    fn run(limits: RunLimits) -> Box<RunContext> {
        RunContext::new(RunRules { limits, price: Some(PRICE), ..RunRules::default() })
    }

    #[test]
    fn without_limits_there_is_nothing_to_share() {
        let none = BudgetShare { cost: None, tokens: None, time: None };
        assert_eq!(BudgetShare::new(&run(RunLimits::default()), [].into_iter()), none);
    }

    #[test]
    fn each_call_gets_half_of_what_the_others_and_the_closing_call_leave() {
        let mut run = run(RunLimits {
            budget: Some(MicroUsd(1_000)),
            max_tokens: Some(Tokens(500)),
            timeout: Some(TimeSpan(1_000)),
            ..RunLimits::default()
        });
        (run.used.cost, run.now) = (MicroUsd(200), RunTime(100));
        let first = BudgetShare::new(&run, [].into_iter());
        assert_eq!(
            first,
            BudgetShare {
                cost: Some(MicroUsd(300)),
                tokens: Some(Tokens(200)),
                time: Some(TimeSpan(800))
            }
        );
        let second = BudgetShare::new(&run, [first].into_iter());
        assert_eq!((second.cost, second.tokens), (Some(MicroUsd(150)), Some(Tokens(100))));
    }

    #[test]
    fn usage_is_subtracted() {
        let time = Some(TimeSpan(5));
        let budget = BudgetShare { cost: Some(MicroUsd(300)), tokens: Some(Tokens(200)), time };
        let left = budget.after_usage(BudgetUsage { cost: MicroUsd(100), tokens: Tokens(250) });
        assert_eq!(left, BudgetShare { cost: Some(MicroUsd(200)), tokens: Some(Tokens(0)), time });
    }
}
