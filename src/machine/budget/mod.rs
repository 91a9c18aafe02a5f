//! Reservation: a call is made only when its worst case fits what is left, so that no limit is overshot.

pub(crate) mod budget_share;
pub(crate) mod cost_breakdown;

use crate::machine::effect::CallPurpose;
use crate::machine::event::RequestSize;
use crate::machine::output::StepBuilder;
use crate::machine::run_context::RunContext;
use crate::model::{Fault, MicroUsd, Price, Tokens};

/// Even a short reply might cost more than is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unaffordable;

/// The part of a budget that is kept for the closing call at the most.
pub(crate) const CLOSING_SHARE: u64 = 5;

/// Room for the instruction with which a closing call ends.
const INSTRUCTION_TOKENS: Tokens = Tokens(200);

/// Returns the limit of a call's output; none leaves that to the provider.
///
/// The output limit is lowered before a call is refused. What the closing call will need is left untouched by every
/// other call, up to a fifth of the budget.
pub(crate) fn reserve(
    run: &RunContext,
    size: &RequestSize,
    purpose: CallPurpose,
) -> Result<Option<Tokens>, Unaffordable> {
    let rules = &run.rules;
    let money =
        rules.limits.budget.zip(rules.price).map(|(budget, price)| MoneyBudget { budget, price });
    let tokens = rules.limits.max_tokens;
    if money.is_none() && tokens.is_none() {
        return Ok(rules.output.user_limit);
    }
    let wanted = rules.output.user_limit.unwrap_or(rules.output.model_limit);
    let closing = match purpose {
        CallPurpose::Agent | CallPurpose::Compaction => Some(rules.output.closing),
        CallPurpose::Closing => None,
    };
    let by_money = money.map_or(Some(wanted), |money| money.affordable_output(run, size, closing));
    let by_tokens = tokens.map_or(Some(wanted), |limit| {
        let kept = closing.map_or(Tokens::ZERO, |output| {
            (size.upper_bound + INSTRUCTION_TOKENS + output).min(Tokens(limit.0 / CLOSING_SHARE))
        });
        let left = limit.saturating_sub(run.used.tokens).saturating_sub(kept);
        left.0.checked_sub(size.upper_bound.0).map(Tokens)
    });
    match by_money.zip(by_tokens) {
        Some((a, b)) if wanted.min(a).min(b) >= rules.output.minimum.min(wanted) => {
            Ok(Some(wanted.min(a).min(b)))
        }
        Some(_) | None => Err(Unaffordable),
    }
}

#[derive(Clone, Copy)]
struct MoneyBudget {
    budget: MicroUsd,
    price: Price,
}

impl MoneyBudget {
    /// Returns how much output the rest of the budget buys, or nothing when it does not buy the input.
    fn affordable_output(
        self,
        run: &RunContext,
        size: &RequestSize,
        closing: Option<Tokens>,
    ) -> Option<Tokens> {
        let kept = closing.map_or(MicroUsd::ZERO, |output| {
            self.price
                .max_cost(size.upper_bound + INSTRUCTION_TOKENS, output)
                .min(MicroUsd(self.budget.0 / CLOSING_SHARE))
        });
        let left = self.budget.saturating_sub(run.used.cost).saturating_sub(kept);
        self.price.affordable_output(left, size.upper_bound)
    }
}

/// Charges a call that failed, if the provider does: what it has read, and what had come of the reply, as far as that was
/// set aside.
pub(crate) fn charge_failed_call(
    run: &mut RunContext,
    fault: &Fault,
    (size, purpose): (&RequestSize, CallPurpose),
    out: &mut StepBuilder,
) {
    if !fault.billed {
        return;
    }
    // Nothing has been charged since the call was allowed, so this is what it was granted.
    let granted = reserve(run, size, purpose).ok().flatten();
    let output = granted.map_or(fault.received, |granted| granted.min(fault.received));
    run.charge_usage(&size.estimate_usage(output), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FaultKind, RunLimits, RunRules};

    const FACTS: RequestSize = RequestSize {
        estimate: Tokens(800),
        upper_bound: Tokens(1_000),
        exchanges: 0,
        shortened_estimate: Tokens::ZERO,
    };

    /// One micro-dollar for each token of input, ten for each of output.
    const PRICE: Price = Price {
        input: 1_000_000,
        output: 10_000_000,
        cached_input: 0,
        cache_write: 0,
        long_input: None,
    };

    fn run(limits: RunLimits) -> RunContext {
        RunContext::new(RunRules { limits, price: Some(PRICE), ..RunRules::default() })
    }

    fn dollars(budget: u64) -> RunLimits {
        RunLimits { budget: Some(MicroUsd(budget)), ..RunLimits::default() }
    }

    fn tokens(max_tokens: u64) -> RunLimits {
        RunLimits { max_tokens: Some(Tokens(max_tokens)), ..RunLimits::default() }
    }

    #[test]
    fn without_a_budget_the_output_is_the_users_choice() {
        let granted = reserve(&run(RunLimits::default()), &FACTS, CallPurpose::Agent);
        assert_eq!(granted, Ok(None));
    }

    #[test]
    fn a_call_that_failed_is_charged_for_what_had_come_of_its_reply() {
        let fault = |heard, billed| Fault {
            received: Tokens(heard),
            billed,
            ..Fault::new(FaultKind::Truncated, "")
        };
        let charged = |limits, fault: &Fault| {
            let mut run = run(limits);
            charge_failed_call(
                &mut run,
                fault,
                (&FACTS, CallPurpose::Agent),
                &mut StepBuilder::default(),
            );
            run.used.cost
        };
        assert_eq!(charged(RunLimits::default(), &fault(100, false)), MicroUsd::ZERO);
        assert_eq!(charged(RunLimits::default(), &fault(0, true)), MicroUsd(800));
        assert_eq!(charged(RunLimits::default(), &fault(100, true)), MicroUsd(1_800));
        // No more had been granted than 1 500 tokens.
        assert_eq!(charged(dollars(20_000), &fault(9_000, true)), MicroUsd(15_800));
    }

    #[test]
    fn the_output_is_lowered_to_what_is_left_beside_the_closing_call() {
        // A fifth of 20 000 stays for closing; 1 000 are the input; the rest buys 1 500 tokens.
        let granted = reserve(&run(dollars(20_000)), &FACTS, CallPurpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens(1_500))));
        let closing = reserve(&run(dollars(20_000)), &FACTS, CallPurpose::Closing);
        assert_eq!(closing, Ok(Some(Tokens(1_900))));
    }

    #[test]
    fn a_call_that_may_write_next_to_nothing_is_not_made() {
        for limits in [dollars(0), dollars(4_400), tokens(0), tokens(1_500)] {
            let refused = reserve(&run(limits.clone()), &FACTS, CallPurpose::Agent);
            assert_eq!(refused, Err(Unaffordable), "{limits:?}");
        }
    }

    #[test]
    fn tokens_are_counted_both_ways() {
        let mut run = run(tokens(10_000));
        assert_eq!(reserve(&run, &FACTS, CallPurpose::Agent), Ok(Some(Tokens(7_000))));
        run.used.tokens = Tokens(6_500);
        assert_eq!(reserve(&run, &FACTS, CallPurpose::Agent), Ok(Some(Tokens(500))));
        run.used.tokens = Tokens(7_000);
        assert_eq!(reserve(&run, &FACTS, CallPurpose::Agent), Err(Unaffordable));
        assert!(matches!(reserve(&run, &FACTS, CallPurpose::Closing), Ok(Some(_))));
    }

    #[test]
    fn money_without_a_price_is_not_counted() {
        let rules = RunRules { limits: dollars(0), price: None, ..RunRules::default() };
        let granted = reserve(&RunContext::new(rules), &FACTS, CallPurpose::Agent);
        assert_eq!(granted, Ok(None));
    }

    /// With room enough, what stays is what the call would cost, not a fifth.
    #[test]
    fn no_more_is_kept_for_the_closing_call_than_it_may_need() {
        // It reads 1 000 tokens and an instruction of 200, and writes 2 000.
        let mut run_of_tokens = run(tokens(100_000));
        run_of_tokens.used.tokens = Tokens(90_000);
        let granted = reserve(&run_of_tokens, &FACTS, CallPurpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens(10_000 - 3_200 - 1_000))));
        // That is 1 200 + 20 000 of 50 000; after 1 000 for the input the rest buys a tenth of it.
        let mut run_of_money = run(dollars(200_000));
        run_of_money.used.cost = MicroUsd(150_000);
        let granted = reserve(&run_of_money, &FACTS, CallPurpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens((50_000 - 21_200 - 1_000) / 10))));
    }

    #[test]
    fn an_output_of_the_least_worth_is_granted_and_one_token_less_is_not() {
        // Beside 1 000 tokens of input, for a closing call that keeps nothing for another.
        assert_eq!(
            reserve(&run(tokens(1_256)), &FACTS, CallPurpose::Closing),
            Ok(Some(Tokens(256)))
        );
        assert_eq!(reserve(&run(tokens(1_255)), &FACTS, CallPurpose::Closing), Err(Unaffordable));
    }
}
