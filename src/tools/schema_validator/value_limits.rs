//! Limits on values that exclude each other.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value};

use super::checks::compare;

/// The kinds of values; together they cover all values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Null,
    Boolean,
    Object,
    Array,
    /// A number without a fraction.
    Integer,
    /// Any other number.
    Fraction,
    String,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::Null,
        Self::Boolean,
        Self::Object,
        Self::Array,
        Self::Integer,
        Self::Fraction,
        Self::String,
    ];

    /// Returns whether all values of this kind have a type.
    fn is(self, name: &str) -> bool {
        match self {
            Self::Null => name == "null",
            Self::Boolean => name == "boolean",
            Self::Object => name == "object",
            Self::Array => name == "array",
            Self::Integer => name == "integer" || name == "number",
            Self::Fraction => name == "number",
            Self::String => name == "string",
        }
    }

    fn is_in(self, types: &Value) -> bool {
        let types = types.as_array().map_or(std::slice::from_ref(types), Vec::as_slice);
        types.iter().filter_map(Value::as_str).any(|name| self.is(name))
    }
}

/// Returns whether the types of a schema exclude a kind of values.
pub(super) fn excludes_kind(map: &Map<String, Value>, kind: Kind) -> bool {
    let excluded = map.get("not").and_then(Value::as_object).filter(|not| not.len() == 1);
    map.get("type").is_some_and(|types| !kind.is_in(types))
        || excluded.and_then(|not| not.get("type")).is_some_and(|types| kind.is_in(types))
}

/// Returns the reason why no count satisfies the limits of schemas that all apply.
pub(super) fn count_reason(
    parts: &[(String, &Map<String, Value>)],
    least: &str,
    most: &str,
) -> Option<String> {
    let limits = |key: &str| {
        let limits = parts.iter().filter_map(|(_, map)| map.get(key)?.as_f64());
        limits.collect::<Vec<_>>()
    };
    let lowest = limits(least).into_iter().reduce(f64::max)?;
    let highest = limits(most).into_iter().reduce(f64::min)?;
    (lowest > highest).then(|| format!("has a {least} above its {most}"))
}

/// A limit on numbers.
struct NumberLimit<'a> {
    number: &'a Number,
    is_excluded: bool,
}

/// Returns the lower or the upper number limits of schemas that all apply.
fn limits<'a>(
    parts: &[(String, &'a Map<String, Value>)],
    names: [&str; 2],
) -> Vec<NumberLimit<'a>> {
    let [limit, exclusive] = names;
    let of = |map: &'a Map<String, Value>| {
        let is_excluded = map.get(exclusive) == Some(&Value::Bool(true));
        let limit = map.get(limit).and_then(Value::as_number);
        let exclusive = map.get(exclusive).and_then(Value::as_number);
        [
            limit.map(|number| NumberLimit { number, is_excluded }),
            exclusive.map(|number| NumberLimit { number, is_excluded: true }),
        ]
    };
    parts.iter().flat_map(|(_, map)| of(map)).flatten().collect()
}

const LOWER: [&str; 2] = ["minimum", "exclusiveMinimum"];
const UPPER: [&str; 2] = ["maximum", "exclusiveMaximum"];

/// Returns the reason why no number satisfies the limits of schemas that all apply.
pub(super) fn number_reason(parts: &[(String, &Map<String, Value>)]) -> Option<String> {
    let (lower, upper) = (limits(parts, LOWER), limits(parts, UPPER));
    let excludes =
        |least: &NumberLimit, most: &NumberLimit| match compare(least.number, most.number) {
            Ordering::Greater => true,
            // Large numbers may be equal only as floating-point numbers.
            Ordering::Equal => {
                (least.is_excluded || most.is_excluded)
                    && exact(least.number).is_some_and(|least| Some(least) == exact(most.number))
            }
            Ordering::Less => false,
        };
    let found = lower
        .iter()
        .find_map(|least| Some((least, upper.iter().find(|most| excludes(least, most))?)));
    found.map(|(least, most)| {
        format!(
            "excludes all numbers: the minimum {} and the maximum {}",
            least.number, most.number
        )
    })
}

/// Returns the reason why no integer satisfies the limits of schemas that all apply.
pub(super) fn integer_reason(parts: &[(String, &Map<String, Value>)]) -> Option<String> {
    if let Some(reason) = number_reason(parts) {
        return Some(reason);
    }
    let lower = limits(parts, LOWER).into_iter().filter_map(|it| {
        let number = exact(it.number)?;
        Some(if it.is_excluded { number.floor() + 1.0 } else { number.ceil() })
    });
    let upper = limits(parts, UPPER).into_iter().filter_map(|it| {
        let number = exact(it.number)?;
        Some(if it.is_excluded { number.ceil() - 1.0 } else { number.floor() })
    });
    let (lower, upper) = (lower.reduce(f64::max)?, upper.reduce(f64::min)?);
    if lower > upper {
        return Some("excludes all integers by its minimum and maximum".to_owned());
    }
    let factors = parts.iter().filter_map(|(_, map)| map.get("multipleOf")?.as_number());
    let mut factors = factors.filter_map(exact).filter(|factor| factor.fract() == 0.0);
    let factor = factors.find(|factor| (lower / factor).ceil() * factor > upper)?;
    Some(format!("excludes all multiples of {factor} by its minimum and maximum"))
}

/// The limit below which floating-point numbers represent integers exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns a number that is exact as a floating-point number.
fn exact(number: &Number) -> Option<f64> {
    number.as_f64().filter(|number| number.abs() < MAX_EXACT)
}
