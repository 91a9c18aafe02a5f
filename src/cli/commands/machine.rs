//! `architect machine`: the statechart that a run follows, and what a run uses at most.

use architect::app::{AppError, ProcessEnv, ResolvedModel};
use architect::config::{ModelLimits, run_rules};
use architect::machine::RunBounds;
use architect::types::{RunRules, pluralize};
use architect::view::chart;

use crate::cli::args::{MachineArgs, SettingsArgs};
use crate::cli::config_options::{self, DEFAULT_AGENT};
use crate::cli::error::CliError;
use crate::cli::output;

pub(crate) fn run(args: &MachineArgs, env: &ProcessEnv) -> Result<u8, CliError> {
    let text = match args.bounds {
        true => format_bounds(&bounds(&args.settings, env)?),
        false => chart::render(args.format).map_err(CliError::failed)?,
    };
    output::print(&text)
}

/// Returns the bounds of a run that these options begin. A configuration without a model has no price.
fn bounds(args: &SettingsArgs, env: &ProcessEnv) -> Result<RunBounds, CliError> {
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
    // A session that others can reach may have a follow-up waiting.
    let mut bounds = RunBounds::new(&RunRules { has_checks: true, ..rules });
    // The budget holds for any price.
    bounds.cost = config.settings.limits.budget_usd;
    Ok(bounds)
}

fn format_bounds(bounds: &RunBounds) -> String {
    let RunBounds { calls, requests, cost, tokens, time, steps } = *bounds;
    let count = |count: u64, one, several| {
        pluralize(usize::try_from(count).unwrap_or(usize::MAX), one, several)
    };
    let no_limit = |of: &str, key: &str| format!("no limit of {of}; `{key}` sets one");
    let calls = count(calls, "call", "calls");
    let mut lines = vec![
        requests.map_or_else(
            || format!("at most {calls} of the model; `llm.retry_for` limits the time of retries, not their number"),
            |requests| {
                let requests = count(requests, "request", "requests");
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
        format!("at most {}", count(steps, "step", "steps")),
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
