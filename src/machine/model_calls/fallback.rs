//! The choice of a fallback model when a model is out of reach.

use crate::machine::budget;
use crate::machine::effect::CallPurpose;
use crate::machine::event::RequestSize;
use crate::machine::run_context::RunContext;
use crate::types::Fault;

/// The decision on a call whose model is out of reach, when its retries are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FallbackDecision {
    /// Call this model instead. The budget doesn't cover the models between the current one and this one.
    To(u32),
    /// The budget covers none of the remaining models.
    Unaffordable,
    /// There is no other model, or another model can't help.
    GiveUp,
}

/// Decides which model is called after this fault. The budget must cover the call at the price of that model.
pub(crate) fn decide(run: &RunContext, size: &RequestSize, fault: &Fault) -> FallbackDecision {
    let fallbacks = run.rules.fallbacks();
    if !fault.kind.permits_fallback() || run.model >= fallbacks {
        return FallbackDecision::GiveUp;
    }
    let is_affordable = |model: &u32| {
        let mut other = run.clone();
        other.change_model(*model);
        budget::reserve(&other, size, CallPurpose::Agent).is_ok()
    };
    let affordable = (run.model + 1..=fallbacks).find(is_affordable);
    affordable.map_or(FallbackDecision::Unaffordable, FallbackDecision::To)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FaultKind, MicroUsd, ModelRules, Price, RunLimits, RunRules, Tokens};

    fn run(prices: &[u64], budget: u64) -> Box<RunContext> {
        let model = |price: &u64| ModelRules {
            name: format!("model {price}").into(),
            price: Some(Price { input: 1_000_000, output: *price, ..Price::default() }),
            window: Tokens(100),
            model_limit: Tokens(1_000),
        };
        let limits = RunLimits { budget: Some(MicroUsd(budget)), ..RunLimits::default() };
        let models = prices.iter().map(model).collect();
        RunContext::new(RunRules { limits, models, ..RunRules::default() }.for_model(0))
    }

    fn decide(run: &RunContext, kind: FaultKind) -> FallbackDecision {
        super::decide(run, &RequestSize::default(), &Fault::new(kind, ""))
    }

    #[test]
    fn the_next_model_that_the_budget_covers_is_called() {
        let dear = 1_000_000_000_000;
        let decide = |prices: &[u64]| decide(&run(prices, 1_000_000), FaultKind::Server);
        assert_eq!(decide(&[1, 2, 3]), FallbackDecision::To(1));
        assert_eq!(decide(&[1, dear, 3]), FallbackDecision::To(2));
        assert_eq!(decide(&[1, dear, dear]), FallbackDecision::Unaffordable);
        assert_eq!(decide(&[1]), FallbackDecision::GiveUp);
        assert_eq!(decide(&[]), FallbackDecision::GiveUp);
    }

    #[test]
    fn no_model_is_called_twice() {
        let mut run = run(&[1, 2, 3], 1_000_000);
        run.change_model(1);
        assert_eq!(decide(&run, FaultKind::Server), FallbackDecision::To(2));
        run.change_model(2);
        assert_eq!(decide(&run, FaultKind::Server), FallbackDecision::GiveUp);
    }

    #[test]
    fn only_a_model_that_is_out_of_reach_is_replaced() {
        let run = run(&[1, 2], 1_000_000);
        let replaced: Vec<&str> = FaultKind::ALL
            .into_iter()
            .filter(|kind| decide(&run, *kind) == FallbackDecision::To(1))
            .map(FaultKind::as_str)
            .collect();
        let expected =
            ["connect", "timeout", "rate_limited", "server", "truncated", "missing_model"];
        assert_eq!(replaced, expected);
    }
}
