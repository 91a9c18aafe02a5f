//! Budget reservation: a call is made only if its worst case fits into the remaining budget, so that no limit is
//! exceeded.

pub(crate) mod budget_share;
pub(crate) mod cost_breakdown;
pub(crate) mod model_usage;

use crate::machine::effect::CallPurpose;
use crate::machine::event::RequestSize;
use crate::machine::output::StepBuilder;
use crate::machine::run_context::RunContext;
use crate::types::{Fault, MicroUsd, Price, RunRules, Tokens};

/// The remaining budget doesn't cover even a minimal reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unaffordable;

/// The maximum part of a budget that is reserved for the closing call: one fifth.
pub(crate) const CLOSING_SHARE: u64 = 5;

/// The space for the instruction at the end of a closing call.
const INSTRUCTION_TOKENS: Tokens = Tokens(200);

/// Returns the output limit of a call, or `None` to leave it to the provider.
///
/// The output limit is lowered before a call is refused. All calls but the closing call leave the budget that the
/// closing call needs, up to a fifth of the whole.
pub(crate) fn reserve(
    run: &RunContext,
    size: &RequestSize,
    purpose: CallPurpose,
) -> Result<Option<Tokens>, Unaffordable> {
    let rules = &run.rules;
    let money = rules.limits.budget.zip(run.price_for(purpose));
    let tokens = rules.limits.max_tokens;
    if money.is_none() && tokens.is_none() {
        return Ok(rules.output.user_limit);
    }
    let wanted = rules.output.user_limit.unwrap_or(rules.output.model_limit);
    let is_closing = match purpose {
        CallPurpose::Agent | CallPurpose::Compaction => false,
        CallPurpose::Closing => true,
    };
    let kept = |most: u64, limit: u64| if is_closing { 0 } else { most.min(limit / CLOSING_SHARE) };
    let by_money = money.map_or(Some(wanted), |(budget, price)| {
        let kept = MicroUsd(kept(closing_cost(run, size, price).0, budget.0));
        let left = budget.saturating_sub(run.used.cost).saturating_sub(kept);
        price.affordable_output(left, size.upper_bound)
    });
    let by_tokens = tokens.map_or(Some(wanted), |limit| {
        let kept = Tokens(kept(closing_tokens(run, size).0, limit.0));
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

/// Returns the maximum cost of the closing call. The model of the task writes the final summary.
fn closing_cost(run: &RunContext, size: &RequestSize, price: Price) -> MicroUsd {
    let price = run.rules.price.unwrap_or(price);
    price.max_cost(size.upper_bound + INSTRUCTION_TOKENS, run.rules.output.closing)
}

/// Returns the maximum number of tokens of the closing call.
fn closing_tokens(run: &RunContext, size: &RequestSize) -> Tokens {
    size.upper_bound + INSTRUCTION_TOKENS + run.rules.output.closing
}

/// Returns the lowest budget and the lowest token limit with which a call of the agent would be made. Each is `None` if
/// the run doesn't have such a limit, or if its limit suffices.
pub fn least_limits(run: &RunContext, size: &RequestSize) -> (Option<MicroUsd>, Option<Tokens>) {
    let RunRules { limits, output, .. } = &*run.rules;
    let reply = output.minimum.min(output.user_limit.unwrap_or(output.model_limit));
    // At most a fifth of the limit is reserved for the closing call.
    let with_closing = |needed: u64, closing: u64| {
        needed.saturating_add(closing.min(needed.saturating_sub(1) / (CLOSING_SHARE - 1)))
    };
    let money = limits.budget.zip(run.price_for(CallPurpose::Agent));
    let money = money.and_then(|(budget, price)| {
        let needed = run.used.cost + price.max_cost(size.upper_bound, reply);
        let least = MicroUsd(with_closing(needed.0, closing_cost(run, size, price).0));
        (least > budget).then_some(least)
    });
    let tokens = limits.max_tokens.and_then(|limit| {
        let needed = run.used.tokens + size.upper_bound + reply;
        let least = Tokens(with_closing(needed.0, closing_tokens(run, size).0));
        (least > limit).then_some(least)
    });
    (money, tokens)
}

/// Charges a failed call if the provider charges for it.
pub(crate) fn charge_failed_call(
    run: &mut RunContext,
    fault: &Fault,
    call: (&RequestSize, CallPurpose),
    out: &mut StepBuilder,
) {
    if fault.billed {
        charge_incomplete_call(run, fault.received, call, out);
    }
}

/// Charges a call that was sent and has no reply, because the provider has probably read it.
pub(crate) fn charge_unanswered_call(
    run: &mut RunContext,
    call: (&RequestSize, CallPurpose),
    out: &mut StepBuilder,
) {
    charge_incomplete_call(run, run.received, call, out);
}

/// Charges a call for its input, and for the received output, up to its output limit. If the reply is not streamed, or
/// the received part is unknown, the output is charged up to the limit; without a limit, it costs nothing.
fn charge_incomplete_call(
    run: &mut RunContext,
    received: Tokens,
    (size, purpose): (&RequestSize, CallPurpose),
    out: &mut StepBuilder,
) {
    // Nothing was charged since the budget was reserved, so this is the output limit of the call.
    let output = match reserve(run, size, purpose).ok().flatten() {
        Some(granted) if run.rules.output.is_whole => granted,
        Some(granted) => granted.min(received),
        None if received == Tokens::MAX => Tokens::ZERO,
        None => received,
    };
    run.received = output;
    run.charge_usage(&size.estimate_usage(output), purpose, out);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::{FaultKind, RunLimits};

    const SIZE: RequestSize = RequestSize {
        estimate: Tokens(800),
        upper_bound: Tokens(1_000),
        exchanges: 0,
        shortened_estimate: Tokens::ZERO,
    };

    /// One micro-dollar per input token, ten per output token.
    const PRICE: Price = Price {
        input: 1_000_000,
        output: 10_000_000,
        cached_input: 0,
        cache_write: 0,
        long_input: None,
    };

    fn run(limits: RunLimits) -> Box<RunContext> {
        RunContext::new(RunRules { limits, price: Some(PRICE), ..RunRules::default() })
    }

    fn dollars(budget: u64) -> RunLimits {
        RunLimits { budget: Some(MicroUsd(budget)), ..RunLimits::default() }
    }

    fn tokens(max_tokens: u64) -> RunLimits {
        RunLimits { max_tokens: Some(Tokens(max_tokens)), ..RunLimits::default() }
    }

    #[test]
    fn without_a_budget_the_user_sets_the_output_limit() {
        let granted = reserve(&run(RunLimits::default()), &SIZE, CallPurpose::Agent);
        assert_eq!(granted, Ok(None));
    }

    #[test]
    fn with_the_least_limits_a_call_is_made_and_with_less_it_is_not() {
        for (input, output) in [(1, 1), (3, 700), (1_000_000, 10_000_000)] {
            for used in [0, 1, 77, 12_345] {
                let mut run = run(RunLimits {
                    budget: Some(MicroUsd::ZERO),
                    max_tokens: Some(Tokens::ZERO),
                    ..RunLimits::default()
                });
                let price = Price { input, output, ..PRICE };
                Arc::make_mut(&mut run.rules).price = Some(price);
                (run.used.cost, run.used.tokens) = (MicroUsd(used), Tokens(used));
                let (budget, tokens) = least_limits(&run, &SIZE);
                let (budget, tokens) = (budget.unwrap(), tokens.unwrap());
                let mut is_made = |budget: u64, tokens: u64| {
                    let limits = &mut Arc::make_mut(&mut run.rules).limits;
                    (limits.budget, limits.max_tokens) =
                        (Some(MicroUsd(budget)), Some(Tokens(tokens)));
                    reserve(&run, &SIZE, CallPurpose::Agent).is_ok()
                };
                assert!(is_made(budget.0, tokens.0), "{price:?} {used}");
                assert!(!is_made(budget.0 - 1, tokens.0), "{price:?} {used}");
                assert!(!is_made(budget.0, tokens.0 - 1), "{price:?} {used}");
                // Limits that suffice are not named.
                assert!(is_made(budget.0, tokens.0));
                assert_eq!(least_limits(&run, &SIZE), (None, None));
            }
        }
    }

    #[test]
    fn a_summary_is_reserved_and_charged_at_its_own_price() {
        let mut run = run(dollars(20_000));
        Arc::make_mut(&mut run.rules).summary_price =
            Some(Price { input: 2_000_000, output: 5_000_000, ..Price::default() });
        let granted = |run: &RunContext, purpose| reserve(run, &SIZE, purpose);
        // 4 000 of 20 000 are reserved for the final summary.
        assert_eq!(granted(&run, CallPurpose::Agent), Ok(Some(Tokens(1_500))));
        assert_eq!(granted(&run, CallPurpose::Compaction), Ok(Some(Tokens(2_800))));
        let fault =
            Fault { billed: true, received: Tokens(100), ..Fault::new(FaultKind::Truncated, "") };
        let call = (&SIZE, CallPurpose::Compaction);
        charge_failed_call(&mut run, &fault, call, &mut StepBuilder::default());
        assert_eq!(run.used.cost, MicroUsd(2 * 800 + 5 * 100));
    }

    #[test]
    fn a_failed_call_is_charged_for_the_output_that_arrived() {
        let fault = |received, billed| Fault {
            received: Tokens(received),
            billed,
            ..Fault::new(FaultKind::Truncated, "")
        };
        let charged = |limits, fault: &Fault| {
            let mut run = run(limits);
            charge_failed_call(
                &mut run,
                fault,
                (&SIZE, CallPurpose::Agent),
                &mut StepBuilder::default(),
            );
            run.used.cost
        };
        assert_eq!(charged(RunLimits::default(), &fault(100, false)), MicroUsd::ZERO);
        assert_eq!(charged(RunLimits::default(), &fault(0, true)), MicroUsd(800));
        assert_eq!(charged(RunLimits::default(), &fault(100, true)), MicroUsd(1_800));
        // Its output limit was 1 500 tokens.
        assert_eq!(charged(dollars(20_000), &fault(9_000, true)), MicroUsd(15_800));
    }

    #[test]
    fn a_call_that_is_cut_off_is_charged_for_its_input_and_what_arrived_or_for_its_limit() {
        let charged = |is_whole, received, limits| {
            let mut run = run(limits);
            run.received = Tokens(received);
            Arc::make_mut(&mut run.rules).output.is_whole = is_whole;
            let call = (&SIZE, CallPurpose::Agent);
            charge_unanswered_call(&mut run, call, &mut StepBuilder::default());
            run.used.cost
        };
        assert_eq!(charged(false, 0, dollars(20_000)), MicroUsd(800));
        assert_eq!(charged(false, 100, dollars(20_000)), MicroUsd(1_800));
        assert_eq!(charged(false, 100, RunLimits::default()), MicroUsd(1_800));
        // Without streaming, and if the received part was lost.
        assert_eq!(charged(true, 0, dollars(20_000)), MicroUsd(15_800));
        assert_eq!(charged(false, u64::MAX, dollars(20_000)), MicroUsd(15_800));
        assert_eq!(charged(false, u64::MAX, RunLimits::default()), MicroUsd(800));
    }

    #[test]
    fn the_output_limit_is_lowered_to_what_the_closing_call_leaves() {
        // A fifth of 20 000 is reserved for closing, 1 000 are the input; the rest covers 1 500 tokens.
        let granted = reserve(&run(dollars(20_000)), &SIZE, CallPurpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens(1_500))));
        let closing = reserve(&run(dollars(20_000)), &SIZE, CallPurpose::Closing);
        assert_eq!(closing, Ok(Some(Tokens(1_900))));
    }

    #[test]
    fn a_call_with_a_minimal_output_limit_is_not_made() {
        for limits in [dollars(0), dollars(4_400), tokens(0), tokens(1_500)] {
            let refused = reserve(&run(limits.clone()), &SIZE, CallPurpose::Agent);
            assert_eq!(refused, Err(Unaffordable), "{limits:?}");
        }
    }

    #[test]
    fn tokens_of_input_and_output_are_counted() {
        let mut run = run(tokens(10_000));
        assert_eq!(reserve(&run, &SIZE, CallPurpose::Agent), Ok(Some(Tokens(7_000))));
        run.used.tokens = Tokens(6_500);
        assert_eq!(reserve(&run, &SIZE, CallPurpose::Agent), Ok(Some(Tokens(500))));
        run.used.tokens = Tokens(7_000);
        assert_eq!(reserve(&run, &SIZE, CallPurpose::Agent), Err(Unaffordable));
        assert!(matches!(reserve(&run, &SIZE, CallPurpose::Closing), Ok(Some(_))));
    }

    #[test]
    fn without_a_price_the_cost_is_not_counted() {
        let rules = RunRules { limits: dollars(0), price: None, ..RunRules::default() };
        let granted = reserve(&RunContext::new(rules), &SIZE, CallPurpose::Agent);
        assert_eq!(granted, Ok(None));
    }

    /// If enough is left, the reservation is the cost of the call, not a fifth.
    #[test]
    fn no_more_is_reserved_for_the_closing_call_than_it_may_need() {
        // It reads 1 000 tokens and an instruction of 200, and writes 2 000.
        let mut run_of_tokens = run(tokens(100_000));
        run_of_tokens.used.tokens = Tokens(90_000);
        let granted = reserve(&run_of_tokens, &SIZE, CallPurpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens(10_000 - 3_200 - 1_000))));
        // The closing call takes 1 200 + 20 000 of 50 000; after 1 000 for the input, the rest covers a tenth of it.
        let mut run_of_money = run(dollars(200_000));
        run_of_money.used.cost = MicroUsd(150_000);
        let granted = reserve(&run_of_money, &SIZE, CallPurpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens((50_000 - 21_200 - 1_000) / 10))));
    }

    #[test]
    fn the_minimum_output_is_granted_and_one_token_less_is_not() {
        // In addition to 1 000 input tokens, for a closing call, which reserves nothing for another call.
        assert_eq!(
            reserve(&run(tokens(1_256)), &SIZE, CallPurpose::Closing),
            Ok(Some(Tokens(256)))
        );
        assert_eq!(reserve(&run(tokens(1_255)), &SIZE, CallPurpose::Closing), Err(Unaffordable));
    }
}
