//! Reservation: a call is made only when its worst case fits what is left, so that no limit is overshot.

use super::effect::Purpose;
use super::event::Facts;
use super::next::Out;
use super::run::Run;
use crate::model::{Fault, Micros, Price, Tokens};

/// Even a short reply might cost more than is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unaffordable;

/// The part of a budget that is kept for the closing call at the most.
pub(super) const CLOSING_SHARE: u64 = 5;

/// Room for the instruction with which a closing call ends.
const INSTRUCTION: Tokens = Tokens(200);

/// Returns the limit of a call's output; none leaves that to the provider.
///
/// The output limit is lowered before a call is refused. What the closing call will need is left untouched by every
/// other call, up to a fifth of the budget.
pub(super) fn reserve(
    run: &Run,
    facts: &Facts,
    purpose: Purpose,
) -> Result<Option<Tokens>, Unaffordable> {
    let rules = &run.rules;
    let money = rules.limits.budget.zip(rules.price).map(|(budget, price)| Money { budget, price });
    let tokens = rules.limits.max_tokens;
    if money.is_none() && tokens.is_none() {
        return Ok(rules.output.max);
    }
    let wanted = rules.output.max.unwrap_or(rules.output.ceiling);
    let closing = match purpose {
        Purpose::Agent | Purpose::Compaction => Some(rules.output.closing),
        Purpose::Closing => None,
    };
    let by_money = money.map_or(Some(wanted), |money| money.output(run, facts, closing));
    let by_tokens = tokens.map_or(Some(wanted), |limit| {
        let kept = closing.map_or(Tokens::ZERO, |output| {
            (facts.bound + INSTRUCTION + output).min(Tokens(limit.0 / CLOSING_SHARE))
        });
        let left = limit.minus(run.spent.tokens).minus(kept);
        left.0.checked_sub(facts.bound.0).map(Tokens)
    });
    match by_money.zip(by_tokens) {
        Some((a, b)) if wanted.min(a).min(b) >= rules.output.least.min(wanted) => {
            Ok(Some(wanted.min(a).min(b)))
        }
        Some(_) | None => Err(Unaffordable),
    }
}

#[derive(Clone, Copy)]
struct Money {
    budget: Micros,
    price: Price,
}

impl Money {
    /// Returns how much output the rest of the budget buys, or nothing when it does not buy the input.
    fn output(self, run: &Run, facts: &Facts, closing: Option<Tokens>) -> Option<Tokens> {
        let kept = closing.map_or(Micros::ZERO, |output| {
            self.price
                .worst(facts.bound + INSTRUCTION, output)
                .min(Micros(self.budget.0 / CLOSING_SHARE))
        });
        let left = self.budget.minus(run.spent.cost).minus(kept);
        self.price.output_for(left, facts.bound)
    }
}

/// Charges a call that failed, if the provider does: what it has read, and what had come of the reply, as far as that was
/// set aside.
pub(super) fn charge_failed(
    run: &mut Run,
    fault: &Fault,
    (facts, purpose): (&Facts, Purpose),
    out: &mut Out,
) {
    if !fault.billed {
        return;
    }
    // Nothing has been charged since the call was allowed, so this is what it was granted.
    let granted = reserve(run, facts, purpose).ok().flatten();
    let output = granted.map_or(fault.heard, |granted| granted.min(fault.heard));
    run.charge(&facts.unanswered(output), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FaultKind, Limits, Rules};

    const FACTS: Facts =
        Facts { context: Tokens(800), bound: Tokens(1_000), exchanges: 0, shortened: Tokens::ZERO };

    /// One micro-dollar for each token of input, ten for each of output.
    const PRICE: Price =
        Price { input: 1_000_000, output: 10_000_000, cached_input: 0, cache_write: 0, long: None };

    fn run(limits: Limits) -> Run {
        Run::new(Rules { limits, price: Some(PRICE), ..Rules::default() })
    }

    fn dollars(budget: u64) -> Limits {
        Limits { budget: Some(Micros(budget)), ..Limits::default() }
    }

    fn tokens(max_tokens: u64) -> Limits {
        Limits { max_tokens: Some(Tokens(max_tokens)), ..Limits::default() }
    }

    #[test]
    fn without_a_budget_the_output_is_the_users_choice() {
        let granted = reserve(&run(Limits::default()), &FACTS, Purpose::Agent);
        assert_eq!(granted, Ok(None));
    }

    #[test]
    fn a_call_that_failed_is_charged_for_what_had_come_of_its_reply() {
        let fault = |heard, billed| Fault {
            heard: Tokens(heard),
            billed,
            ..Fault::new(FaultKind::Truncated, "")
        };
        let charged = |limits, fault: &Fault| {
            let mut run = run(limits);
            charge_failed(&mut run, fault, (&FACTS, Purpose::Agent), &mut Out::default());
            run.spent.cost
        };
        assert_eq!(charged(Limits::default(), &fault(100, false)), Micros::ZERO);
        assert_eq!(charged(Limits::default(), &fault(0, true)), Micros(800));
        assert_eq!(charged(Limits::default(), &fault(100, true)), Micros(1_800));
        // No more had been granted than 1 500 tokens.
        assert_eq!(charged(dollars(20_000), &fault(9_000, true)), Micros(15_800));
    }

    #[test]
    fn the_output_is_lowered_to_what_is_left_beside_the_closing_call() {
        // A fifth of 20 000 stays for closing; 1 000 are the input; the rest buys 1 500 tokens.
        let granted = reserve(&run(dollars(20_000)), &FACTS, Purpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens(1_500))));
        let closing = reserve(&run(dollars(20_000)), &FACTS, Purpose::Closing);
        assert_eq!(closing, Ok(Some(Tokens(1_900))));
    }

    #[test]
    fn a_call_that_may_write_next_to_nothing_is_not_made() {
        for limits in [dollars(0), dollars(4_400), tokens(0), tokens(1_500)] {
            let refused = reserve(&run(limits.clone()), &FACTS, Purpose::Agent);
            assert_eq!(refused, Err(Unaffordable), "{limits:?}");
        }
    }

    #[test]
    fn tokens_are_counted_both_ways() {
        let mut run = run(tokens(10_000));
        assert_eq!(reserve(&run, &FACTS, Purpose::Agent), Ok(Some(Tokens(7_000))));
        run.spent.tokens = Tokens(6_500);
        assert_eq!(reserve(&run, &FACTS, Purpose::Agent), Ok(Some(Tokens(500))));
        run.spent.tokens = Tokens(7_000);
        assert_eq!(reserve(&run, &FACTS, Purpose::Agent), Err(Unaffordable));
        assert!(matches!(reserve(&run, &FACTS, Purpose::Closing), Ok(Some(_))));
    }

    #[test]
    fn money_without_a_price_is_not_counted() {
        let rules = Rules { limits: dollars(0), price: None, ..Rules::default() };
        let granted = reserve(&Run::new(rules), &FACTS, Purpose::Agent);
        assert_eq!(granted, Ok(None));
    }

    /// With room enough, what stays is what the call would cost, not a fifth.
    #[test]
    fn no_more_is_kept_for_the_closing_call_than_it_may_need() {
        // It reads 1 000 tokens and an instruction of 200, and writes 2 000.
        let mut run_of_tokens = run(tokens(100_000));
        run_of_tokens.spent.tokens = Tokens(90_000);
        let granted = reserve(&run_of_tokens, &FACTS, Purpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens(10_000 - 3_200 - 1_000))));
        // That is 1 200 + 20 000 of 50 000; after 1 000 for the input the rest buys a tenth of it.
        let mut run_of_money = run(dollars(200_000));
        run_of_money.spent.cost = Micros(150_000);
        let granted = reserve(&run_of_money, &FACTS, Purpose::Agent);
        assert_eq!(granted, Ok(Some(Tokens((50_000 - 21_200 - 1_000) / 10))));
    }

    #[test]
    fn an_output_of_the_least_worth_is_granted_and_one_token_less_is_not() {
        // Beside 1 000 tokens of input, for a closing call that keeps nothing for another.
        assert_eq!(reserve(&run(tokens(1_256)), &FACTS, Purpose::Closing), Ok(Some(Tokens(256))));
        assert_eq!(reserve(&run(tokens(1_255)), &FACTS, Purpose::Closing), Err(Unaffordable));
    }
}
