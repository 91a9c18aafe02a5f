//! The rules of a run, as the settings have them.

use super::agents::Agent;
use super::settings::{QualityGate, Settings};
use crate::model::{
    Backoff, Bounds, ContextRules, LimitBase, Limits, LoopRules, OutputRules, Price, Rules, Span,
    Tokens, Watch,
};
use crate::port::HookPoint;

/// What the model table says of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// What it costs, if that is known.
    pub price: Option<Price>,
    /// Its context window, if that is known.
    pub window: Option<Tokens>,
    /// The most that it can write in one call, if that is known.
    pub ceiling: Option<Tokens>,
}

/// Time beyond a limit of its own that an effect gets before the machine goes on without it.
const MARGIN: Span = Span::secs(30);

/// Returns the quality gates that an answer of this agent has to pass: none if the agent can't change anything.
pub fn quality_gates<'a>(settings: &'a Settings, agent: &Agent) -> &'a [QualityGate] {
    if agent.only_reads() { &[] } else { &settings.guardrails.quality_gates }
}

/// Returns the rules of a run of this agent with this model; `seed` is where the jitter of retries comes from.
///
/// Whether a final answer has to pass checks follows from stop hooks and quality gates; a schema, and waiting
/// follow-ups, are for the caller to add.
pub fn rules(settings: &Settings, agent: &Agent, model: &ModelFacts, seed: u64) -> Rules {
    let Settings { llm, limits, context, hooks, .. } = settings;
    let defaults = Rules::default();
    let gates = quality_gates(settings, agent).iter().map(|gate| gate.timeout);
    let hooks_at = |point| hooks.at(point).map(|hook| hook.timeout);
    let checked = gates.len() > 0 || hooks.at(HookPoint::Stop).next().is_some();
    Rules {
        seed,
        limits: Limits {
            max_steps: agent.max_steps,
            budget: limits.budget_usd,
            max_tokens: limits.max_tokens,
            timeout: limits.timeout,
            step_timeout: limits.step_timeout,
            warn_at: limits.warn_at_usd,
        },
        from: LimitBase::default(),
        price: model.price,
        output: OutputRules {
            max: llm.max_output_tokens,
            ceiling: model.ceiling.unwrap_or(defaults.output.ceiling),
            ..defaults.output
        },
        context: ContextRules {
            window: window(context.max_context_tokens, model.window, defaults.context.window),
            threshold: percent(context.threshold),
            summarize_after: context.summarize_after_steps,
            keep_recent: context.keep_recent_steps,
            ..defaults.context
        },
        backoff: Backoff { retries: llm.retries, ..defaults.backoff },
        bounds: match context.parallel_tools {
            true => defaults.bounds,
            false => Bounds { parallel: 1, ..defaults.bounds },
        },
        loops: LoopRules::default(),
        watch: Watch {
            attempt: llm.call_timeout,
            prepare: sum(hooks_at(HookPoint::PreLlmCall).chain([defaults.watch.prepare])),
            vet: sum(hooks_at(HookPoint::PreToolUse).chain([defaults.watch.vet])),
            check: sum(gates.chain(hooks_at(HookPoint::Stop)).chain([MARGIN])),
        },
        checked,
        unknown_finish: defaults.unknown_finish,
        fail_on_denied: settings.permissions.fail_on_denied,
    }
}

/// The user's limit lowers what the model has; where the model is not known, it is taken at its word.
fn window(user: Option<Tokens>, model: Option<Tokens>, default: Tokens) -> Tokens {
    match (user, model) {
        (Some(user), Some(model)) => user.min(model),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => default,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 5 and 95
fn percent(part: f64) -> u64 {
    (part * 100.0).round() as u64
}

fn sum(spans: impl IntoIterator<Item = Span>) -> Span {
    Span(spans.into_iter().fold(0, |sum, span| sum.saturating_add(span.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Sources, load};
    use crate::model::Micros;

    fn config(sets: &[&str]) -> Config {
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        load(&Sources { sets, ..Sources::default() }).unwrap()
    }

    fn rules_of(sets: &[&str], model: &ModelFacts) -> Rules {
        let config = config(sets);
        rules(&config.settings, &config.agent("build").unwrap(), model, 7)
    }

    #[test]
    fn the_defaults_of_both_sides_are_the_same() {
        let rules = rules_of(&[], &ModelFacts::default());
        let defaults = Rules::default();
        let watch = Watch { check: MARGIN, ..defaults.watch };
        assert_eq!(rules, Rules { seed: 7, watch, ..defaults });
    }

    #[test]
    fn what_the_user_says_becomes_a_rule() {
        let sets = [
            "limits.budget_usd=1",
            "limits.max_steps=3",
            "llm.retries=9",
            "context.parallel_tools=false",
            "context.threshold=0.5",
            "guardrails.quality_gates=[{ name = 'g', command = 'x', timeout = 5 }]",
        ];
        let rules = rules_of(&sets, &ModelFacts::default());
        assert_eq!(rules.limits.budget, Some(Micros(1_000_000)));
        assert_eq!((rules.limits.max_steps, rules.backoff.retries), (3, 9));
        assert_eq!((rules.bounds.parallel, rules.context.threshold), (1, 50));
        assert_eq!((rules.watch.check, rules.checked), (Span::secs(35), true));
    }

    #[test]
    fn the_smaller_window_holds() {
        let model = ModelFacts { window: Some(Tokens(200_000)), ..ModelFacts::default() };
        let window = |sets: &[&str], model| rules_of(sets, model).context.window;
        assert_eq!(window(&[], &model), Tokens(200_000));
        assert_eq!(window(&["context.max_context_tokens=5000"], &model), Tokens(5_000));
        assert_eq!(window(&["context.max_context_tokens=500000"], &model), Tokens(200_000));
        let unknown = ModelFacts::default();
        assert_eq!(window(&["context.max_context_tokens=500000"], &unknown), Tokens(500_000));
    }
}
