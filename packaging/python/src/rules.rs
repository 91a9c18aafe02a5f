//! The rules of a run. The caller gives only those that differ from the defaults.

use architect::types::{
    ContextLimits, CountLimits, EffectTimeouts, LimitBaseline, LongInputPrice, LoopDetection,
    MicroUsd, OutputLimits, Price, RetryBackoff, RunLimits, RunRules, RunTime, TimeSpan, Tokens,
    UnknownFinishPolicy,
};
use pyo3::PyResult;
use serde_json::{Map, Value};

use crate::{parse, value_error};

/// Returns the default rules with those of a JSON object.
pub(crate) fn rules(json: &str) -> PyResult<RunRules> {
    let given: Value = parse("rules", json)?;
    let document = |rules: &RunRules| serde_json::to_value(rules);
    let invalid = |error| value_error("invalid rules", error);
    check_keys(&given, &document(&complete_rules()).map_err(invalid)?, "")?;
    let mut merged = document(&RunRules::default()).map_err(invalid)?;
    merge(&mut merged, given);
    serde_json::from_value(merged).map_err(invalid)
}

/// Fails for a key that no rule has, which would be ignored otherwise.
fn check_keys(given: &Value, known: &Value, path: &str) -> PyResult<()> {
    let (Value::Object(given), Value::Object(known)) = (given, known) else { return Ok(()) };
    for (key, value) in given {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match known.get(key) {
            Some(known) => check_keys(value, known, &path)?,
            None => return Err(value_error("invalid rules", format!("there is no '{path}'"))),
        }
    }
    Ok(())
}

fn merge(into: &mut Value, given: Value) {
    match (into, given) {
        (Value::Object(into), Value::Object(given)) => {
            for (key, value) in given {
                merge(into.entry(key).or_insert(Value::Object(Map::new())), value);
            }
        }
        (into, given) => *into = given,
    }
}

/// Returns rules that serialize with the names of all keys. The fields are listed one by one, so that a new one can't
/// be forgotten.
fn complete_rules() -> RunRules {
    let (money, tokens, time) = (MicroUsd(1), Tokens(1), TimeSpan(1));
    let long = LongInputPrice {
        threshold: tokens,
        input: 1,
        output: 1,
        cached_input: 1,
        cache_write: Some(1),
    };
    let price =
        Price { input: 1, output: 1, cached_input: 1, cache_write: 1, long_input: Some(long) };
    RunRules {
        seed: 1,
        limits: RunLimits {
            max_steps: 1,
            budget: Some(money),
            max_tokens: Some(tokens),
            timeout: Some(time),
            step_timeout: Some(time),
            warn_at: Some(money),
        },
        limit_baseline: LimitBaseline { steps: 1, denied_calls: 1, time: RunTime(1) },
        price: Some(price),
        summary_price: Some(price),
        summary_model: Some("".into()),
        models: [architect::types::ModelRules {
            name: "".into(),
            price: Some(price),
            window: tokens,
            model_limit: tokens,
        }]
        .into(),
        output: OutputLimits {
            user_limit: Some(tokens),
            is_whole: true,
            ..OutputLimits::default()
        },
        context: ContextLimits::default(),
        backoff: RetryBackoff { retry_for: Some(time), ..RetryBackoff::default() },
        bounds: CountLimits::default(),
        loop_detection: LoopDetection::default(),
        timeouts: EffectTimeouts::default(),
        has_checks: true,
        unknown_finish: UnknownFinishPolicy::Keep,
        fail_on_denied: true,
    }
}
