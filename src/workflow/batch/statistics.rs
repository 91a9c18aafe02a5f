//! Means and proportions, with their 95 % confidence intervals.

use schemars::JsonSchema;
use serde::Serialize;

/// A mean or a proportion, with its confidence interval. With too few values there is no interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The lower end of the interval.
    pub low: Option<f64>,
    /// The upper end of the interval.
    pub high: Option<f64>,
}

/// Quantiles for 95 %: of the normal distribution and, by degrees of freedom, of Student's t.
const NORMAL_QUANTILE: f64 = 1.96;
const T_QUANTILES: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// Returns the mean of values, with an interval by Student's t; `None` without values.
    pub fn mean(values: &[f64]) -> Option<Self> {
        let count = as_float(values.len());
        let value = values.iter().sum::<f64>() / count;
        if values.len() < 2 {
            return values.first().map(|_| Self { value, low: None, high: None });
        }
        let squares: f64 = values.iter().map(|one| (one - value).powi(2)).sum();
        let freedom = values.len() - 1;
        let quantile = T_QUANTILES.get(freedom - 1).copied().unwrap_or(NORMAL_QUANTILE);
        let margin = quantile * (squares / as_float(freedom) / count).sqrt();
        Some(Self { value, low: Some(value - margin), high: Some(value + margin) })
    }

    /// Returns a proportion, with Wilson's interval; `None` if `whole` is zero.
    pub fn proportion(part: usize, whole: usize) -> Option<Self> {
        if whole == 0 {
            return None;
        }
        let (count, z2) = (as_float(whole), NORMAL_QUANTILE.powi(2));
        let value = as_float(part) / count;
        let middle = (value + z2 / (2.0 * count)) / (1.0 + z2 / count);
        let spread = (value * (1.0 - value) / count + z2 / (4.0 * count * count)).sqrt();
        let margin = NORMAL_QUANTILE * spread / (1.0 + z2 / count);
        let (low, high) = ((middle - margin).max(0.0), (middle + margin).min(1.0));
        Some(Self { value, low: Some(low), high: Some(high) })
    }
}

#[allow(clippy::cast_precision_loss)] // exact up to 2^53
fn as_float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(estimate: Option<Estimate>) -> Option<[f64; 3]> {
        let estimate = estimate?;
        let parts = [Some(estimate.value), estimate.low, estimate.high];
        Some(parts.map(|part| (part.unwrap_or(f64::NAN) * 1e3).round() / 1e3))
    }

    #[test]
    fn intervals_are_those_of_the_textbooks() {
        assert_eq!(rounded(Estimate::proportion(8, 10)), Some([0.8, 0.49, 0.943]));
        assert_eq!(rounded(Estimate::proportion(0, 5)), Some([0.0, 0.0, 0.434]));
        assert_eq!(rounded(Estimate::mean(&[1.0, 2.0, 3.0, 4.0])), Some([2.5, 0.446, 4.554]));
        assert_eq!(Estimate::mean(&[]), None);
        assert_eq!(Estimate::proportion(0, 0), None);
        let single = Estimate::mean(&[7.0]);
        assert_eq!(single, Some(Estimate { value: 7.0, low: None, high: None }));
    }
}
