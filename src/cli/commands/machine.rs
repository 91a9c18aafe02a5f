//! `architect machine`: the statechart that a run follows, and the upper bounds of a run.

use architect::app::{AppError, ProcessEnv, ResolvedModel};
use architect::config::{EvaluationMode, ModelLimits, run_rules};
use architect::machine::RunBounds;
use architect::types::{RunLimits, RunRules, pluralize};
use architect::view::chart;

use crate::cli::args::{MachineArgs, SettingsArgs};
use crate::cli::config_options::{self, DEFAULT_AGENT};
use crate::cli::error::CliError;
use crate::cli::output;

pub(crate) fn run(args: &MachineArgs, env: &ProcessEnv) -> Result<u8, CliError> {
    let text = match args.bounds {
        true => {
            let (bounds, evaluation) = bounds(&args.settings, env)?;
            format_bounds(&bounds) + &evaluation.map_or_else(String::new, |it| it.line(&bounds))
        }
        false => chart::render(args.format).map_err(CliError::failed)?,
    };
    output::print(&text)
}

/// The bounds of evaluations, in addition to those of a run.
struct EvaluationBounds {
    /// The number of evaluations.
    evaluations: u64,
    /// The number of model calls of each evaluation.
    calls: u64,
    /// The number of times that the run continues after an evaluation.
    retries: u64,
}

impl EvaluationBounds {
    /// Returns the bounds with at most this many retries; `None` without evaluation.
    fn new(mode: EvaluationMode, max_retries: u32, rules: &RunRules) -> Option<Self> {
        let retries = match mode {
            EvaluationMode::Off => return None,
            EvaluationMode::Basic => 0,
            EvaluationMode::Full => u64::from(max_retries),
        };
        let limits = RunLimits { max_steps: 1, ..rules.limits.clone() };
        let rules = RunRules { limits, has_checks: false, ..rules.clone() };
        Some(Self { evaluations: retries + 1, calls: RunBounds::new(&rules).calls, retries })
    }

    /// Returns a line about the evaluations of a run with these bounds; empty for a run that can't have an answer.
    fn line(&self, run: &RunBounds) -> String {
        if run.calls == 0 {
            return String::new();
        }
        let Self { evaluations, calls, retries } = *self;
        let all = (run.calls.saturating_mul(retries + 1))
            .saturating_add(calls.saturating_mul(evaluations));
        let runs = match retries {
            0 => String::new(),
            _ => format!(", and {} as above", pluralize(retries, "more run", "more runs")),
        };
        format!(
            "evaluations come on top: at most {}, each with {}{runs}: {} in all, within the same cost, tokens and time\n",
            pluralize(evaluations, "evaluation", "evaluations"),
            pluralize(calls, "call", "calls"),
            pluralize(all, "call", "calls")
        )
    }
}

/// Returns the bounds of a run with these options, and those of its evaluation. Without a model, there is no price.
fn bounds(
    args: &SettingsArgs,
    env: &ProcessEnv,
) -> Result<(RunBounds, Option<EvaluationBounds>), CliError> {
    let config = config_options::load_settings(args, env)?;
    let agent =
        config.agent(args.agent.as_deref().unwrap_or(DEFAULT_AGENT)).map_err(AppError::from)?;
    let rules = |limits: &ModelLimits| run_rules(&config.settings, &agent, limits, 0);
    let rules = if config.settings.llm.model.is_some() {
        let model = ResolvedModel::from_config(&config, env)?;
        model.add_to_rules(&config.settings, rules(&model.limits))
    } else {
        rules(&ModelLimits::default())
    };
    // A stored session may have a waiting follow-up message from another process.
    let mut bounds = RunBounds::new(&RunRules { has_checks: true, ..rules.clone() });
    // The budget is an upper bound for any price.
    bounds.cost = config.settings.limits.budget_usd;
    let evaluation = &config.settings.evaluation;
    Ok((bounds, EvaluationBounds::new(evaluation.mode, evaluation.max_retries, &rules)))
}

fn format_bounds(bounds: &RunBounds) -> String {
    let RunBounds { calls, requests, cost, tokens, time, steps } = *bounds;
    let no_limit = |of: &str, key: &str| format!("no limit of {of}; `{key}` sets one");
    let calls = pluralize(calls, "call", "calls");
    let mut lines = vec![
        requests.map_or_else(
            || format!("at most {calls} of the model; `llm.retry_for` limits the time of retries, not their number"),
            |requests| {
                let requests = pluralize(requests, "request", "requests");
                format!("at most {calls} of the model, {requests} with retries")
            },
        ),
        cost.map_or_else(
            || no_limit("cost", "limits.budget_usd"),
            |cost| format!("at most {}", dollars(&cost.to_string())),
        ),
        time.map_or_else(
            || no_limit("time", "limits.timeout"),
            |time| format!("at most {} s", seconds(time.0)),
        ),
        format!("at most {}", pluralize(steps, "step", "steps")),
    ];
    lines.extend(tokens.map(|tokens| format!("at most {} tokens", tokens.0)));
    lines.join("\n") + "\n"
}

/// Returns an amount with at least two decimals.
fn dollars(amount: &str) -> String {
    let kept = amount.trim_end_matches('0').len();
    let cents = amount.find('.').map_or(kept, |point| point + 3);
    amount.get(..kept.max(cents)).unwrap_or(amount).to_owned()
}

/// Returns microseconds as seconds.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use architect::types::{MicroUsd, TimeSpan, Tokens};

    use super::*;

    #[test]
    fn evaluations_and_the_runs_after_them_come_on_top() {
        let run =
            RunBounds { calls: 10, requests: None, cost: None, tokens: None, time: None, steps: 1 };
        let full = EvaluationBounds { evaluations: 3, calls: 4, retries: 2 };
        let line = "evaluations come on top: at most 3 evaluations, each with 4 calls, and 2 more runs as above: \
                    42 calls in all, within the same cost, tokens and time\n";
        assert_eq!(full.line(&run), line);
        let basic = EvaluationBounds { evaluations: 1, calls: 4, retries: 0 };
        assert!(basic.line(&run).contains("1 evaluation, each with 4 calls: 14 calls in all"));
        assert_eq!(full.line(&RunBounds { calls: 0, ..run }), "");
        // The evaluator has one step, independent of the run.
        let rules = RunRules::default();
        assert!(EvaluationBounds::new(EvaluationMode::Off, 2, &rules).is_none());
        let bounds = EvaluationBounds::new(EvaluationMode::Full, 2, &rules).unwrap();
        assert_eq!((bounds.evaluations, bounds.retries), (3, 2));
        assert!(bounds.calls > 0 && bounds.calls < RunBounds::new(&rules).calls);
    }

    #[test]
    fn each_bound_has_a_line() {
        let bounds = RunBounds {
            calls: 61,
            requests: Some(241),
            cost: Some(MicroUsd(2_000_000)),
            tokens: None,
            time: Some(TimeSpan::from_secs(600)),
            steps: 1,
        };
        let lines = "at most 61 calls of the model, 241 requests with retries\nat most $2.00\nat most 600 s\nat most 1 step\n";
        assert_eq!(format_bounds(&bounds), lines);
        let cost = Some(MicroUsd(1_234_500));
        let time = Some(TimeSpan::from_millis(1_500));
        let others = RunBounds { cost, time, tokens: Some(Tokens(9_000)), ..bounds };
        let lines = format_bounds(&others);
        assert!(
            lines.contains("$1.2345\nat most 1.5 s\n") && lines.ends_with("at most 9000 tokens\n")
        );
        let none = format_bounds(&RunBounds { cost: None, time: None, requests: None, ..bounds });
        assert!(
            none.starts_with("at most 61 calls of the model; `llm.retry_for` limits"),
            "{none}"
        );
        assert!(none.contains("no limit of cost; `limits.budget_usd` sets one\nno limit of time;"));
    }
}
