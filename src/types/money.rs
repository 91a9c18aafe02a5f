//! Money in whole micro-dollars, so that sums are exact and limits are hard.

use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use super::{Tokens, Usage};

/// Millionths of a US dollar.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// No money.
    pub const ZERO: Self = Self(0);

    /// Returns the amount for a number of dollars, rounded to the nearest millionth.
    ///
    /// Returns `None` for a number that is negative, not a number, or too large to be an amount.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let micros = (dollars * 1e6).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked by the range
        (0.0..1e18).contains(&micros).then_some(Self(micros as u64))
    }

    /// Returns the amount in dollars, for display and JSON.
    #[allow(clippy::cast_precision_loss)] // exact to a millionth up to nine billion dollars
    pub fn as_dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the difference, or zero if `other` is larger.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for MicroUsd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// The price of a model: micro-dollars for a million tokens of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Price {
    /// A million input tokens that no cache served.
    pub input: u64,
    /// A million output tokens.
    pub output: u64,
    /// A million input tokens that were read from the cache.
    pub cached_input: u64,
    /// A million input tokens that were written to the cache.
    pub cache_write: u64,
    /// The price of a whole call with long input, if the provider charges more for it.
    #[serde(default, rename = "long", skip_serializing_if = "Option::is_none")]
    pub long_input: Option<LongInputPrice>,
}

/// The price of a call with long input: micro-dollars for a million tokens of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LongInputPrice {
    /// The input up to which the normal price applies.
    #[serde(rename = "above")]
    pub threshold: Tokens,
    /// A million input tokens that no cache served.
    pub input: u64,
    /// A million output tokens.
    pub output: u64,
    /// A million input tokens that were read from the cache.
    pub cached_input: u64,
    /// A million input tokens that were written to the cache, if that costs more than other input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
}

impl Price {
    /// Returns the cost of `usage`, rounded up to a whole micro-dollar.
    pub fn cost(&self, usage: &Usage) -> MicroUsd {
        let price = self.for_input(usage.input);
        let special = usage.cached_input + usage.cache_write;
        cost_of([
            (usage.input.saturating_sub(special), price.input),
            (usage.cached_input, price.cached_input),
            (usage.cache_write, price.cache_write),
            (usage.output, price.output),
        ])
    }

    /// Returns the maximum cost of a call with at most this much input and output.
    pub fn max_cost(&self, input: Tokens, output: Tokens) -> MicroUsd {
        let price = self.for_input(input);
        cost_of([(input, price.max_input_price()), (output, price.output)])
    }

    /// Returns the output that `money` buys in addition to the input, or `None` if it doesn't cover the input.
    pub fn affordable_output(&self, money: MicroUsd, input: Tokens) -> Option<Tokens> {
        let price = self.for_input(input);
        let input = u128::from(input.0) * u128::from(price.max_input_price());
        let rest = (u128::from(money.0) * 1_000_000).checked_sub(input)?;
        let tokens = rest.checked_div(u128::from(price.output)).unwrap_or(u128::from(u64::MAX));
        Some(Tokens(u64::try_from(tokens).unwrap_or(u64::MAX)))
    }

    /// Returns the price of a call with this much input. A long call is never cheaper than a short one.
    fn for_input(&self, input: Tokens) -> Self {
        match self.long_input.filter(|long| input > long.threshold) {
            None => *self,
            Some(long) => Self {
                input: self.input.max(long.input),
                output: self.output.max(long.output),
                cached_input: self.cached_input.max(long.cached_input),
                cache_write: self.cache_write.max(long.cache_write.unwrap_or(long.input)),
                long_input: None,
            },
        }
    }

    /// Returns the highest price of input: any part may be served from the cache, written to it, or neither.
    fn max_input_price(&self) -> u64 {
        self.input.max(self.cached_input).max(self.cache_write)
    }
}

/// Returns the sum of tokens at prices for a million of them, rounded up.
fn cost_of<const N: usize>(parts: [(Tokens, u64); N]) -> MicroUsd {
    // The numbers come from a stored session or a provider and may overflow.
    let products = parts.iter().map(|(n, price)| u128::from(n.0) * u128::from(*price));
    let sum = products.fold(0, u128::saturating_add);
    MicroUsd(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price {
        input: 2_500_000,
        output: 10_000_000,
        cached_input: 1_250_000,
        cache_write: 3_125_000,
        long_input: None,
    };

    fn usage(input: u64, output: u64, cached_input: u64, cache_write: u64) -> Usage {
        Usage {
            input: Tokens(input),
            output: Tokens(output),
            cached_input: Tokens(cached_input),
            cache_write: Tokens(cache_write),
            ..Usage::default()
        }
    }

    #[test]
    fn each_kind_of_token_has_its_price_and_the_sum_is_rounded_up() {
        assert_eq!(PRICE.cost(&usage(200, 40, 0, 0)), MicroUsd(900));
        assert_eq!(PRICE.cost(&usage(200, 40, 100, 50)), MicroUsd(125 + 125 + 157 + 400));
        assert_eq!(PRICE.cost(&usage(1, 0, 0, 0)), MicroUsd(3));
    }

    #[test]
    fn the_worst_case_covers_every_split_of_the_input() {
        for (cached, written) in [(0, 0), (1_000, 0), (0, 1_000), (400, 600)] {
            let cost = PRICE.cost(&usage(1_000, 10, cached, written));
            assert!(cost <= PRICE.max_cost(Tokens(1_000), Tokens(10)));
        }
    }

    #[test]
    fn output_that_money_buys_fits_and_one_token_more_does_not() {
        let (money, input) = (MicroUsd(12_345), Tokens(1_000));
        let output = PRICE.affordable_output(money, input).unwrap();
        assert!(PRICE.max_cost(input, output) <= money);
        assert!(PRICE.max_cost(input, output + Tokens(1)) > money);
        assert_eq!(PRICE.affordable_output(MicroUsd(10), input), None);
    }

    #[test]
    fn a_long_input_makes_the_whole_call_dearer() {
        let long = LongInputPrice {
            threshold: Tokens(1_000),
            input: 5_000_000,
            output: 15_000_000,
            cached_input: 2_500_000,
            cache_write: Some(6_000_000),
        };
        let price = Price { long_input: Some(long), ..PRICE };
        assert_eq!(price.cost(&usage(1_000, 10, 0, 0)), PRICE.cost(&usage(1_000, 10, 0, 0)));
        assert_eq!(price.cost(&usage(1_001, 10, 1, 0)), MicroUsd(5_000 + 3 + 150));
        assert_eq!(price.cost(&usage(1_001, 0, 0, 1_001)), MicroUsd(6_006));
        let (money, input) = (MicroUsd(12_345), Tokens(2_000));
        let output = price.affordable_output(money, input).unwrap();
        assert!(price.max_cost(input, output) <= money);
        assert!(price.max_cost(input, output + Tokens(1)) > money);
    }

    #[test]
    fn the_largest_numbers_cost_the_largest_amount() {
        let price = Price { input: u64::MAX, output: u64::MAX, ..PRICE };
        assert_eq!(price.cost(&usage(u64::MAX, u64::MAX, 0, 0)), MicroUsd(u64::MAX));
    }

    #[test]
    fn a_free_model_has_output_without_end() {
        assert_eq!(
            Price::default().affordable_output(MicroUsd::ZERO, Tokens(9)),
            Some(Tokens(u64::MAX))
        );
    }

    #[test]
    fn dollars_that_are_no_amount_are_refused() {
        assert_eq!(MicroUsd::from_dollars(0.5), Some(MicroUsd(500_000)));
        assert_eq!(MicroUsd::from_dollars(-0.1), None);
        assert_eq!(MicroUsd::from_dollars(f64::NAN), None);
        assert_eq!(MicroUsd::from_dollars(f64::INFINITY), None);
        assert_eq!(MicroUsd(1_250_001).to_string(), "$1.250001");
    }
}
