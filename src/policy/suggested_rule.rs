//! The rule that a user is offered when a call needs a confirmation.

use super::engine::PolicyEngine;
use super::rules::{PermissionRule, RuleTools};
use super::target::{CallKind, CallTarget};
use crate::model::Decision;

/// Programs whose first argument says what they do, so that a rule can be about that argument.
const PROGRAMS_WITH_COMMANDS: [&str; 14] = [
    "bun", "bundle", "cargo", "composer", "dotnet", "git", "go", "gradle", "mix", "mvn", "npm",
    "pnpm", "poetry", "yarn",
];

impl PolicyEngine {
    /// Returns the engine with more rules that allow.
    pub fn with_allowed(&self, rules: &[PermissionRule]) -> Self {
        let mut engine = self.clone();
        engine.add_allowed(rules);
        engine
    }

    /// Returns a rule that would allow a call and those like it: the same command of a program, or files of the same
    /// folder. `None` if no rule would, since another one asks.
    pub fn suggest_rule(
        &self,
        tools: &RuleTools,
        tool: &str,
        kind: CallKind,
        targets: &[CallTarget],
    ) -> Option<PermissionRule> {
        let rules = patterns(targets).into_iter().map(|pattern| match pattern {
            Some(pattern) => format!("{tool}({pattern})"),
            None => tool.to_owned(),
        });
        rules.filter_map(|text| PermissionRule::parse(tools, &text).ok()).find(|rule| {
            let engine = self.with_allowed(std::slice::from_ref(rule));
            matches!(engine.decide(tool, kind, targets), Decision::Allow { .. })
        })
    }
}

/// Returns the possible patterns, the best one first; `None` is about every call of the tool.
fn patterns(targets: &[CallTarget]) -> Vec<Option<String>> {
    match targets {
        [] => vec![None],
        [CallTarget::Command(command)] => {
            let text = command.text().trim();
            let whole = (!text.contains('\n')).then(|| text.to_owned());
            command_pattern(text).into_iter().chain(whole).map(Some).collect()
        }
        targets => {
            let paths = targets.iter().filter_map(|target| match target {
                CallTarget::Read(path) | CallTarget::Write(path) | CallTarget::Search(path) => {
                    Some(path.as_str())
                }
                CallTarget::Command(_) => None,
            });
            file_pattern(&paths.collect::<Vec<_>>()).into_iter().map(Some).collect()
        }
    }
}

fn command_pattern(text: &str) -> Option<String> {
    let is_plain = |c: char| {
        c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || "-_=./:@,+\'\"".contains(c)
    };
    let mut words = text.split_ascii_whitespace();
    let (program, command) = (words.next()?, words.next()?);
    let is_command = command.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let is_known = PROGRAMS_WITH_COMMANDS.contains(&program)
        && is_command
        && !command.starts_with('-')
        // Their arguments name another program.
        && !matches!(command, "exec" | "run" | "x" | "dlx");
    (is_known && text.chars().all(is_plain)).then(|| format!("{program} {command} *"))
}

fn file_pattern(paths: &[&str]) -> Option<String> {
    let folder = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let first = folder(paths.first()?);
    let is_plain = !paths.iter().any(|path| path.contains(['*', '?', '[', ']', '{', '}', '\\']));
    match (paths, first.as_str()) {
        _ if !is_plain => None,
        ([path], "") => Some((*path).to_owned()),
        (_, "") => None,
        (paths, first) if paths.iter().all(|path| folder(path) == first) => {
            Some(format!("{first}/**"))
        }
        _ => None,
    }
}
