//! Checks the rules of the user against the user's own examples.

use super::error::AppError;
use super::resolved_model::known_models;
use super::subagents::DISPATCH;
use super::{configured_hooks, configured_tools};
use crate::config::{Config, ConfigError, ConfigProblem, ExpectedDecision};
use crate::policy::{CallKind, CallTarget, PolicyEngine};
use crate::tools::{ExecutionMode, describe};
use crate::types::{ConfirmMode, Decision};

/// Checks the settings that loading alone can't check: rules, patterns and expressions; each example of
/// `permissions.examples`, for the mode that confirms sensitive calls; the placeholders in the commands of hooks; and
/// the model definitions.
///
/// # Errors
///
/// Fails with all problems.
pub fn check_config(config: &Config) -> Result<(), AppError> {
    check_agents(config)?;
    let Some(agent) = config.agents().next() else { return Ok(()) };
    let settings = configured_tools::tool_settings(config, &agent, ExecutionMode::Real)?;
    let policy =
        PolicyEngine::new(ConfirmMode::ConfirmSensitive, settings.rules, settings.guardrails);
    let examples = &config.settings.permissions.examples;
    let mistaken = examples.iter().filter_map(|(call, decision)| {
        let what = check_example(&policy, call, *decision)?;
        Some(config.problem_with(&format!("permissions.examples.{call}"), what))
    });
    let mut problems: Vec<ConfigProblem> =
        mistaken.chain(configured_hooks::invalid_commands(config)).collect();
    problems.extend(known_models(config)?.problems);
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }.into()) }
}

/// Checks that the tools of agents exist.
///
/// # Errors
///
/// Fails with all tools that don't exist.
pub fn check_agents(config: &Config) -> Result<(), ConfigError> {
    let unknown = |agent| configured_tools::unknown_tools(config, &agent).collect::<Vec<_>>();
    let problems: Vec<ConfigProblem> = config.agents().flat_map(unknown).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}

/// Returns the difference between the decision about an example and the expected decision.
fn check_example(policy: &PolicyEngine, call: &str, expected: ExpectedDecision) -> Option<String> {
    let Some((tool, kind, targets)) = parse_call(call) else {
        return Some("not a call; write it like run_command(git push)".to_owned());
    };
    let (decision, why) = match policy.decide(tool, kind, &targets) {
        Decision::Deny { reason: why } => (ExpectedDecision::Deny, why),
        Decision::Ask { reason: why } => (ExpectedDecision::Ask, why),
        Decision::Allow { reason: why } => (ExpectedDecision::Allow, why),
    };
    let (expected, decided) = (expected.as_str(), decision.as_str());
    (expected != decided).then(|| format!("expected {expected}, but it is {decided}: {why}"))
}

/// Parses a call: its tool, kind and targets.
fn parse_call(call: &str) -> Option<(&str, CallKind, Vec<CallTarget>)> {
    let call = call.trim();
    let (tool, text) = match call.split_once('(') {
        Some((tool, rest)) => (tool, rest.strip_suffix(')')?),
        None => (call, ""),
    };
    let (kind, targets) = match describe(tool) {
        Some(description) => (description.kind(), description.target.parse(text)?),
        None if tool == DISPATCH && !text.is_empty() => {
            (CallKind::Delegates, vec![CallTarget::Name(text.to_owned())])
        }
        None if tool.starts_with("mcp_") && text.is_empty() => (CallKind::External, Vec::new()),
        None => return None,
    };
    Some((tool, kind, targets))
}
