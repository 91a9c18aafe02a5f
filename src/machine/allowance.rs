//! Allowances: what a tool call may use that makes model calls of its own.

use serde::{Deserialize, Serialize};

use super::budget::CLOSING_SHARE;
use super::run::{Run, Spent};
use crate::model::{Micros, Span, Tokens};

/// What a call may use that makes model calls of its own: a run within the run.
///
/// It is half of what is left at most, so that the run can still do something with what comes back, and calls beside
/// this one get something too. None means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Allowance {
    /// Money.
    pub cost: Option<Micros>,
    /// Input and output tokens.
    pub tokens: Option<Tokens>,
    /// Time, from when the call starts.
    pub time: Option<Span>,
}

impl Allowance {
    /// Returns the allowance of a call that starts now, beside others that have these.
    pub(super) fn of(run: &Run, others: impl Iterator<Item = Self>) -> Self {
        let limits = &run.rules.limits;
        let (mut cost, mut tokens) = (run.spent.cost, run.spent.tokens);
        for other in others {
            cost = cost + other.cost.unwrap_or_default();
            tokens = tokens + other.tokens.unwrap_or_default();
        }
        let free = |limit: u64, used: u64| {
            let closing = limit.div_ceil(CLOSING_SHARE);
            limit.saturating_sub(used).saturating_sub(closing) / 2
        };
        // Money without a price is not counted.
        let budget = limits.budget.filter(|_| run.rules.price.is_some());
        Self {
            cost: budget.map(|limit| Micros(free(limit.0, cost.0))),
            tokens: limits.max_tokens.map(|limit| Tokens(free(limit.0, tokens.0))),
            time: run.closes().map(|closes| closes.at.since(run.now)),
        }
    }

    /// Returns what is left of it.
    pub(super) fn after(self, spent: Spent) -> Self {
        Self {
            cost: self.cost.map(|cost| cost.minus(spent.cost)),
            tokens: self.tokens.map(|tokens| tokens.minus(spent.tokens)),
            time: self.time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Limits, Price, Rules, Time};

    const PRICE: Price = Price { input: 1, output: 1, cached_input: 0, cache_write: 0, long: None };

    fn run(limits: Limits) -> Run {
        Run::new(Rules { limits, price: Some(PRICE), ..Rules::default() })
    }

    #[test]
    fn without_limits_there_is_nothing_to_share() {
        let none = Allowance { cost: None, tokens: None, time: None };
        assert_eq!(Allowance::of(&run(Limits::default()), [].into_iter()), none);
    }

    #[test]
    fn each_call_gets_half_of_what_the_others_and_the_closing_call_leave() {
        let mut run = run(Limits {
            budget: Some(Micros(1_000)),
            max_tokens: Some(Tokens(500)),
            timeout: Some(Span(1_000)),
            ..Limits::default()
        });
        (run.spent.cost, run.now) = (Micros(200), Time(100));
        let first = Allowance::of(&run, [].into_iter());
        assert_eq!(
            first,
            Allowance { cost: Some(Micros(300)), tokens: Some(Tokens(200)), time: Some(Span(800)) }
        );
        let second = Allowance::of(&run, [first].into_iter());
        assert_eq!((second.cost, second.tokens), (Some(Micros(150)), Some(Tokens(100))));
    }

    #[test]
    fn what_was_used_is_taken_out_of_what_is_left() {
        let time = Some(Span(5));
        let allowance = Allowance { cost: Some(Micros(300)), tokens: Some(Tokens(200)), time };
        let left = allowance.after(Spent { cost: Micros(100), tokens: Tokens(250) });
        assert_eq!(left, Allowance { cost: Some(Micros(200)), tokens: Some(Tokens(0)), time });
    }
}
