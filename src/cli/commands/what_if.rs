//! `architect what-if`: the effects of other settings on stored sessions.

use std::path::Path;

use architect::app::{ChangedDecision, FinalSummaryBound, ProcessEnv, WhatIfReport, what_if};
use architect::machine::StateKind;
use architect::types::{Decision, pluralize};
use architect::view::sanitize;
use architect::workflow::what_if_lanes::LaneComparison;
use architect::workspace::read_input;
use schemars::JsonSchema;
use serde::Serialize;

use super::resume::{saved_options, split_record};
use super::what_if_lanes::{self, SummaryLine, format_usage};
use crate::cli::args::WhatIfArgs;
use crate::cli::config_options::{self, DEFAULT_AGENT, as_sets};
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session_lookup::SessionLookup;

pub(crate) fn run(args: &WhatIfArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let policy = args.policy.as_deref().map(read_policy).transpose()?.unwrap_or_default();
    let keys = &args.settings.keys.overrides;
    let is_run = args.prompt.is_some()
        || args.settings.agent.is_some()
        || keys.iter().any(|set| set.key == "llm.model");
    if is_run {
        return what_if_lanes::run(args, &policy, world);
    }
    if args.lanes.is_some() || !args.checks.is_empty() {
        return Err(CliError::usage("--lanes and --check are for runs with a model")
            .hint("give --model, --agent or --prompt"));
    }
    let layers = &args.settings.layers;
    let changes = [policy, layers.set.clone(), as_sets(keys)].concat();
    if changes.is_empty() && args.settings.mode.is_none() {
        return Err(CliError::usage("no change is given")
            .hint("give --set KEY=VALUE, --policy FILE, or --model MODEL to run it again"));
    }
    let stored = SessionLookup::open(layers, args.last, world)?;
    for name in &args.sessions {
        let (name, seq) = split_record(name)?;
        if seq.is_some() {
            return Err(CliError::usage("a record is where a run with a model begins")
                .hint("give --model, --agent or --prompt, or the session alone"));
        }
        let session = stored.find(name)?;
        stored.check_whole(session)?;
        let (history, _) = stored.store.load(session)?;
        let saved = saved_options(&stored, &history, layers.workspace.as_deref())?;
        let agent = saved.agent.as_deref().unwrap_or(DEFAULT_AGENT);
        let mode = args.settings.mode.map(|mode| format!("agents.{agent}.confirm_mode={mode}"));
        let changes: Vec<String> = changes.iter().cloned().chain(mode).collect();
        let load = |changes| config_options::load_changed(layers, &saved, changes, world);
        let (before, after) = (load(&[])?, load(&changes)?);
        let report = what_if(&stored.store, session, agent, [&before, &after])?;
        let text = if args.json { output::to_json(&report) } else { format_report(&report) };
        output::print(&stored.secrets.mask_all(&text))?;
    }
    Ok(0)
}

/// Reads a policy, and returns its keys in the form of `--set`.
fn read_policy(path: &Path) -> Result<Vec<String>, CliError> {
    let name = sanitize::path(path);
    let wrong = |why: String| {
        CliError::usage(format!("{name}: {why}"))
            .hint("a policy is a TOML file with a table [permissions], as in the configuration")
    };
    let text = read_input(path).map_err(|error| CliError::unreadable(&name, &error))?;
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
    if let Some(other) = table.keys().find(|key| *key != "permissions") {
        return Err(wrong(format!("'{other}' is not a part of a policy")));
    }
    match table.get("permissions").and_then(toml::Value::as_table) {
        Some(rules) if !rules.is_empty() => {
            Ok(rules.iter().map(|(key, value)| format!("permissions.{key}={value}")).collect())
        }
        _ => Err(wrong("it has no permissions".to_owned())),
    }
}

/// A line of `architect what-if --json`: a session without a model call, a session with its lanes, or the summary of all lanes.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)] // names the forms of a line for their schema
pub(crate) enum WhatIfLine {
    /// The effects of other settings on a session.
    Report(WhatIfReport),
    /// The comparison of a session with its repetitions.
    Lanes(LaneComparison),
    /// The summary of all lanes.
    Summary(SummaryLine),
}

fn format_report(report: &WhatIfReport) -> String {
    let end = report.stop_reason.unwrap_or("not ended");
    let used = format_usage(&report.recorded);
    let mut text = format!("{}: recorded: {end}, {used}; nothing is run\n", report.session_id);
    let Some(first) = report.first_difference else {
        text.push_str(match report.decisions.is_empty() {
            true => "  nothing would have changed\n",
            false => "  only confirmations would have changed\n",
        });
        report.decisions.iter().for_each(|decision| text.push_str(&format_decision(decision)));
        return text;
    };
    text.push_str(&format!("  the first difference is after record {first}\n"));
    report.decisions.iter().for_each(|decision| text.push_str(&format_decision(decision)));
    if report.shortened_results > 0 {
        let results = pluralize(report.shortened_results, "result", "results");
        text.push_str(&format!("  {results} would have been shortened\n"));
    }
    if let Some(found) = &report.divergence {
        let what = match found.stop_reason {
            Some(reason) => format!("ended with {reason}"),
            None => format!("gone to {} instead of {}", found.state, found.recorded_state),
        };
        let used = format_usage(&found.used);
        text.push_str(&format!("  the run would have {what} after record {}: {used}\n", found.seq));
        text.push_str(&match found.final_summary {
            Some(bound) => {
                format!("  and a final summary, not recorded: {}\n", format_bound(&bound))
            }
            None if found.state == StateKind::Done || found.stop_reason.is_some() => String::new(),
            None => "  what would have followed is not estimated\n".to_owned(),
        });
    }
    text
}

fn format_bound(bound: &FinalSummaryBound) -> String {
    let FinalSummaryBound { llm_calls, max_tokens, max_cost } = bound;
    let calls = pluralize(*llm_calls, "model call", "model calls");
    let tokens = pluralize(*max_tokens, "token", "tokens");
    let cost = max_cost.map_or_else(String::new, |cost| format!(" and ${cost:.4}"));
    format!("{calls}, at most {tokens}{cost}")
}

fn format_decision(decision: &ChangedDecision) -> String {
    let ChangedDecision { seq, tool, arguments, before, after, .. } = decision;
    let arguments = sanitize::headline(arguments, 60);
    let recorded = match decision.ran {
        Some(true) => "; it ran",
        Some(false) => "; it was denied",
        None => "",
    };
    let [(before, _), (after, reason)] = [before, after].map(|decision| match decision {
        Decision::Allow { reason } => ("allowed", reason),
        Decision::Ask { reason } => ("to be confirmed", reason),
        Decision::Deny { reason } => ("denied", reason),
    });
    let reason = sanitize::headline(reason, 120);
    format!("  @{seq} {tool} {arguments}: {before}, then {after} ({reason}){recorded}\n")
}
