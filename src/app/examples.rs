//! The rules of the user, held against the user's own examples.

use super::error::AppError;
use super::hooks;
use super::setup::Effect;
use super::tools;
use crate::config::{Config, ConfigError, Problem, Verdict};
use crate::tools::permission::{ConfirmMode, Decision, Judge};
use crate::tools::{CommandTarget, Kind, Target};

/// Checks what can only be judged with the tools: rules, patterns and expressions, and that each example of
/// `permissions.examples` is decided as it says, where no mode says otherwise; and what only a shell would find out, the
/// commands of hooks.
///
/// # Errors
///
/// Fails with everything that is wrong.
pub fn check(config: &Config) -> Result<(), AppError> {
    let Some(agent) = config.agents().next() else { return Ok(()) };
    let settings = tools::settings(config, &agent, Effect::Real)?;
    let judge = Judge::new(ConfirmMode::ConfirmSensitive, settings.rules, settings.guardrails);
    let examples = &config.settings.permissions.examples;
    let mistaken = examples.iter().filter_map(|(call, verdict)| {
        let what = mistake(&judge, call, *verdict)?;
        Some(config.problem(&format!("permissions.examples.{call}"), what))
    });
    let problems: Vec<Problem> = mistaken.chain(hooks::mistakes(config)).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }.into()) }
}

/// Returns what is wrong with an example.
fn mistake(judge: &Judge, call: &str, expected: Verdict) -> Option<String> {
    let Some((tool, kind, targets)) = read(call) else {
        return Some("this is no call; one is written like run_command(git push)".to_owned());
    };
    let (verdict, why) = match judge.decide_about(tool, kind, &targets) {
        Decision::Deny(why) => (Verdict::Deny, why),
        Decision::Ask(why) => (Verdict::Ask, why),
        Decision::Allow(why) => (Verdict::Allow, why),
    };
    let (expected, decided) = (expected.word(), verdict.word());
    (expected != decided).then(|| format!("expected {expected}, but it is {decided}: {why}"))
}

/// Reads a call: its tool, and what it touches.
fn read(call: &str) -> Option<(&str, Kind, Vec<Target>)> {
    let call = call.trim();
    let (tool, text) = match call.split_once('(') {
        Some((tool, rest)) => (tool, rest.strip_suffix(')')?),
        None => (call, ""),
    };
    let on = |target: fn(String) -> Target| (!text.is_empty()).then(|| vec![target(text.into())]);
    let (kind, targets) = match tool {
        "run_command" => {
            let command = |line| {
                Target::Command(CommandTarget { line, folder: String::new(), env: Vec::new() })
            };
            (Kind::Command, on(command)?)
        }
        "read_file" => (Kind::Reads, on(Target::Read)?),
        "list_files" | "search_code" | "grep" | "find_files" => {
            (Kind::Reads, on(Target::Search).unwrap_or_default())
        }
        "write_file" | "edit_file" | "apply_patch" | "delete_file" => {
            (Kind::Changes, on(Target::Write)?)
        }
        _ if tool.starts_with("mcp_") && text.is_empty() => (Kind::Foreign, Vec::new()),
        _ => return None,
    };
    Some((tool, kind, targets))
}
