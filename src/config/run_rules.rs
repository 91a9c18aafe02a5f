//! The rules of a run, from the settings.

use std::sync::Arc;

use super::agents::AgentDefinition;
use super::settings::{QualityGate, Settings};
use crate::port::HookPoint;
use crate::types::{
    ContextLimits, CountLimits, EffectTimeouts, ModelRules, OutputLimits, Price, RetryBackoff,
    RunLimits, RunRules, TimeSpan, Tokens,
};

/// The price and limits of a model; `None` where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLimits {
    /// The price.
    pub price: Option<Price>,
    /// The price of the summary model, if it is another model with a known price.
    pub summary_price: Option<Price>,
    /// The context window.
    pub window: Option<Tokens>,
    /// The maximum number of tokens that the model can generate in one call.
    pub max_output: Option<Tokens>,
}

/// Time that an effect gets beyond its own limit before the machine continues without it.
const DEADLINE_MARGIN: TimeSpan = TimeSpan::from_secs(30);

/// Returns the quality gates for an answer of this agent; empty for an agent that can't change anything.
pub fn quality_gates<'a>(settings: &'a Settings, agent: &AgentDefinition) -> &'a [QualityGate] {
    if agent.is_read_only() { &[] } else { &settings.guardrails.quality_gates }
}

/// Returns the rules of a run of this agent with this model; `seed` determines the jitter of retries.
///
/// Stop hooks and quality gates determine whether a final answer has to pass checks. The caller adds an output schema
/// and waiting follow-up messages.
pub fn run_rules(
    settings: &Settings,
    agent: &AgentDefinition,
    model: &ModelLimits,
    seed: u64,
) -> RunRules {
    let Settings { llm, limits, context, hooks, .. } = settings;
    let defaults = RunRules::default();
    let gates = quality_gates(settings, agent).iter().map(|gate| gate.timeout);
    let hooks_at = |point| hooks.enabled_at(point).map(|hook| hook.timeout);
    let has_checks = gates.len() > 0 || hooks.enabled_at(HookPoint::Stop).next().is_some();
    RunRules {
        seed,
        limits: RunLimits {
            max_steps: agent.max_steps,
            budget: limits.budget_usd,
            max_tokens: limits.max_tokens,
            timeout: limits.timeout,
            step_timeout: limits.step_timeout,
            warn_at: limits.warn_at_usd,
        },
        price: model.price,
        summary_price: model.summary_price,
        output: OutputLimits {
            user_limit: llm.max_output_tokens,
            model_limit: output_limit(model),
            is_whole: !llm.stream,
            ..defaults.output
        },
        context: ContextLimits {
            window: window(settings, model),
            threshold: percent(context.threshold),
            summarize_after: context.summarize_after_steps,
            keep_recent: context.keep_recent_steps,
            ..defaults.context
        },
        backoff: RetryBackoff {
            retries: llm.retries,
            retry_for: llm.retry_for,
            ..defaults.backoff
        },
        bounds: match context.parallel_tools {
            true => defaults.bounds,
            false => CountLimits { parallel_calls: 1, ..defaults.bounds },
        },
        timeouts: EffectTimeouts {
            attempt: llm.call_timeout,
            prepare: sum(defaults.timeouts.prepare, hooks_at(HookPoint::PreLlmCall)),
            authorize: sum(defaults.timeouts.authorize, hooks_at(HookPoint::PreToolUse)),
            check: sum(DEADLINE_MARGIN, gates.chain(hooks_at(HookPoint::Stop))),
        },
        has_checks,
        fail_on_denied: settings.permissions.fail_on_denied,
        ..defaults
    }
}

/// Returns the rules of one of several models of a run.
pub fn model_rules(settings: &Settings, name: Arc<str>, model: &ModelLimits) -> ModelRules {
    ModelRules {
        name,
        price: model.price,
        window: window(settings, model),
        model_limit: output_limit(model),
    }
}

/// Returns the lower of the user's limit and the model's; the user's limit if the model is unknown.
fn window(settings: &Settings, model: &ModelLimits) -> Tokens {
    let windows = [settings.context.max_context_tokens, model.window].into_iter();
    windows.flatten().min().unwrap_or_else(|| ContextLimits::default().window)
}

fn output_limit(model: &ModelLimits) -> Tokens {
    model.max_output.unwrap_or_else(|| OutputLimits::default().model_limit)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 5 and 95
fn percent(part: f64) -> u64 {
    (part * 100.0).round() as u64
}

fn sum(first: TimeSpan, spans: impl Iterator<Item = TimeSpan>) -> TimeSpan {
    TimeSpan(spans.fold(first.0, |sum, span| sum.saturating_add(span.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigSources, load};
    use crate::types::MicroUsd;

    fn config(sets: &[&str]) -> Config {
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        load(&ConfigSources { sets, ..ConfigSources::default() }).unwrap()
    }

    fn rules_of(sets: &[&str], model: &ModelLimits) -> RunRules {
        let config = config(sets);
        run_rules(&config.settings, &config.agent("build").unwrap(), model, 7)
    }

    #[test]
    fn the_default_settings_give_the_default_rules() {
        let rules = rules_of(&[], &ModelLimits::default());
        let defaults = RunRules::default();
        let timeouts = EffectTimeouts { check: DEADLINE_MARGIN, ..defaults.timeouts };
        // About half a minute in all, which outlasts a short outage.
        let backoff = RetryBackoff { retries: 6, ..defaults.backoff };
        assert_eq!(rules, RunRules { seed: 7, timeouts, backoff, ..defaults });
    }

    #[test]
    fn settings_become_rules() {
        let sets = [
            "limits.budget_usd=1",
            "limits.max_steps=3",
            "llm.retries=9",
            "llm.retry_for=10m",
            "context.parallel_tools=false",
            "context.threshold=0.5",
            "guardrails.quality_gates=[{ name = 'g', command = 'x', timeout = 5 }]",
        ];
        let rules = rules_of(&sets, &ModelLimits::default());
        assert_eq!(rules.limits.budget, Some(MicroUsd(1_000_000)));
        assert_eq!((rules.limits.max_steps, rules.backoff.retries), (3, 9));
        assert_eq!(rules.backoff.retry_for, Some(TimeSpan::from_secs(600)));
        assert_eq!((rules.bounds.parallel_calls, rules.context.threshold), (1, 50));
        assert_eq!((rules.timeouts.check, rules.has_checks), (TimeSpan::from_secs(35), true));
    }

    #[test]
    fn the_smaller_window_wins() {
        let model = ModelLimits { window: Some(Tokens(200_000)), ..ModelLimits::default() };
        let window = |sets: &[&str], model| rules_of(sets, model).context.window;
        assert_eq!(window(&[], &model), Tokens(200_000));
        assert_eq!(window(&["context.max_context_tokens=5000"], &model), Tokens(5_000));
        assert_eq!(window(&["context.max_context_tokens=500000"], &model), Tokens(200_000));
        let unknown = ModelLimits::default();
        assert_eq!(window(&["context.max_context_tokens=500000"], &unknown), Tokens(500_000));
    }
}
