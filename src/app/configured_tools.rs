//! The tools of a run, from the settings.

use std::sync::Arc;

use super::configured_servers::{self, ToolDeferral};
use super::function_tool::FunctionTool;
use super::run_io::{RunIo, SharedResources};
use super::run_setup::RunSetup;
use super::session::SessionResults;
use super::skills::SkillStatus;
use super::subagents::{DISPATCH, DispatchTool, SubagentContext};
use crate::config::{AgentDefinition, Config, ConfigProblem, PathPattern, PermissionsConfig};
use crate::machine::Conversation;
use crate::net::Secrets;
use crate::policy::{
    BlockedCommands, CallKind, CommandScope, FilePatterns, GuardrailLimits, Guardrails,
    PermissionRule, PermissionRules, QuotaUsage, Repositories, UnwritablePaths,
};
use crate::tools::{
    BUILT_IN, BuiltInTool, CommandSettings, ExecutionMode, FileDeletion, MaxResultTokens,
    READ_OUTPUT, SEARCH_TOOLS, SkillFolder, Tool, ToolRegistry, ToolSettings, describe, rule_tools,
    standard_tools,
};
use crate::types::{ConversationItem, did_you_mean, matches_wildcard, nearest_within};

impl RunSetup {
    /// Returns the tools of a run. Long results are stored whole in `results`, or in memory. A sub-agent gets no
    /// sub-agents.
    pub(super) fn tool_registry(
        &self,
        io: &RunIo,
        shared: &SharedResources,
        results: Option<SessionResults>,
        subagents: Option<SubagentContext>,
        secrets: Secrets,
        deferral: &ToolDeferral<'_>,
    ) -> Result<ToolRegistry, ConfigProblem> {
        let Self { config, agent, sandbox, tools: custom, .. } = self;
        let mut settings = tool_settings(config, agent, self.execution)?;
        settings.rules = parse_rules(config, custom)?;
        // A sub-agent gets the embedding program's tools only if its own list allows them.
        if let (Some(allowed), true) = (&mut settings.allowed_tools, subagents.is_some()) {
            allowed.extend(custom.iter().map(|tool| tool.name().to_owned()));
        }
        let used = self.skills.iter().filter(|skill| skill.status == SkillStatus::Active);
        let used = used.filter_map(|skill| {
            Some(SkillFolder { name: skill.name.clone(), path: skill.user_folder()?.to_owned() })
        });
        settings.skills = used.collect();
        settings.guardrails.unwritable = UnwritablePaths::new(sandbox.model.policy());
        settings.guardrails.repositories = Repositories::new(&sandbox.model.policy().workspace);
        let mut tools = standard_tools(&self.root, &sandbox.model, &settings);
        if !config.settings.commands.enabled {
            let is_about_commands =
                |name: &str| describe(name).is_some_and(BuiltInTool::is_about_commands);
            tools.retain(|tool| !is_about_commands(&tool.spec().name));
        }
        let server_tools: Vec<_> =
            configured_servers::server_tools(&shared.servers, &io.confirm).collect();
        if let Some(subagents) = subagents {
            let names = tools.iter().chain(&server_tools).map(|tool| Arc::clone(&tool.spec().name));
            let has =
                |tool: &Arc<str>| agent.allowed_tools.iter().any(|own| matches_wildcard(own, tool));
            let names = names.chain([READ_OUTPUT.into()]).filter(has).collect();
            tools.push(Box::new(DispatchTool::new(subagents, names)));
        }
        tools.extend(server_tools);
        tools.extend(custom.iter().map(|tool| Box::new(tool.clone()) as Box<dyn Tool>));
        let registry = ToolRegistry::new(tools, settings)
            .with_confirmer(Arc::clone(&io.confirm))
            .with_shared_quota(shared.quota.clone())
            .with_secrets(secrets)
            .with_images(self.model.images)
            .with_diffs(io.reporter.shown_diffs())
            .with_deferred(&deferral.deferred_tools(
                &config.settings.mcp,
                &shared.servers,
                &agent.allowed_tools,
            ));
        Ok(match results {
            Some(results) => registry.with_results(Arc::new(results)),
            None => registry,
        })
    }
}

/// Returns whether a built-in tool of this name runs commands.
fn runs_commands(tool: &str) -> bool {
    describe(tool).is_some_and(|tool| tool.kind() == CallKind::Command)
}

/// Returns the usage of a session so far that counts towards the limits on changes and commands.
pub(super) fn used_quota(conversation: &Conversation) -> QuotaUsage {
    let mut used = QuotaUsage::default();
    for entry in conversation.entries() {
        let ConversationItem::Exchange(exchange) = &entry.item else { continue };
        for (call, result) in exchange.reply().calls().zip(exchange.results()) {
            used.commands += u64::from(runs_commands(&call.name));
            for change in &result.changes {
                used.files.insert(change.path.clone());
                used.lines += change.added + change.removed;
            }
        }
    }
    used
}

/// Returns a problem for each unknown tool in an agent's list.
pub(super) fn unknown_tools(
    config: &Config,
    agent: &AgentDefinition,
) -> impl Iterator<Item = ConfigProblem> {
    let key = format!("agents.{}.allowed_tools", agent.name);
    let errors = agent.allowed_tools.iter().filter_map(|entry| check_tool_name(entry).err());
    errors.map(move |error| config.problem_with(&key, error))
}

/// Returns the settings of the tools.
///
/// # Errors
///
/// Fails if a rule, a pattern or an expression is invalid.
pub(super) fn tool_settings(
    config: &Config,
    agent: &AgentDefinition,
    effect: ExecutionMode,
) -> Result<ToolSettings, ConfigProblem> {
    let settings = &config.settings;
    let commands = &settings.commands;
    if let Some(problem) = unknown_tools(config, agent).next() {
        return Err(problem);
    }
    Ok(ToolSettings {
        allowed_tools: Some(agent.allowed_tools.clone()),
        mode: agent.confirm_mode,
        rules: parse_rules(config, &[])?,
        guardrails: parse_guardrails(config)?,
        commands: CommandSettings {
            default_timeout: commands.default_timeout.0.div_ceil(1_000_000).max(1),
            max_output_lines: commands.max_output_lines as usize,
            max_stored_output: u64::from(commands.max_stored_output_mb) << 20,
        },
        skills: Vec::new(),
        delete: if settings.workspace.allow_delete {
            FileDeletion::Allowed
        } else {
            FileDeletion::Refused
        },
        execution: effect,
        max_result_tokens: MaxResultTokens(settings.context.max_tool_result_tokens.0),
    })
}

/// Returns the rules of the settings, with rules that allow the tools of the embedding program.
fn parse_rules(config: &Config, custom: &[FunctionTool]) -> Result<PermissionRules, ConfigProblem> {
    let PermissionsConfig { deny, ask, allow, .. } = &config.settings.permissions;
    let tools = rule_tools();
    for (key, texts) in
        [("permissions.deny", deny), ("permissions.ask", ask), ("permissions.allow", allow)]
    {
        for text in texts {
            let checked = PermissionRule::parse(&tools, text).map_err(|error| error.to_string());
            checked
                .and_then(|_| check_tool_name(text))
                .and_then(|()| check_pattern(text))
                .map_err(|error| config.problem_with(key, error))?;
        }
    }
    let custom = custom.iter().map(|tool| tool.name().to_owned());
    let allow: Vec<String> = allow.iter().cloned().chain(custom).collect();
    PermissionRules::parse(&tools, deny, ask, &allow)
        .map_err(|error| config.problem_with("permissions.deny", error.to_string()))
}

fn parse_guardrails(config: &Config) -> Result<Guardrails, ConfigProblem> {
    let (guardrails, commands) = (&config.settings.guardrails, &config.settings.commands);
    let files = |key: &str, patterns: &[PathPattern]| {
        let texts: Vec<&str> = patterns.iter().map(PathPattern::as_str).collect();
        FilePatterns::parse(&texts).map_err(|error| config.problem_with(key, error.to_string()))
    };
    let blocked = BlockedCommands::parse(&commands.blocked_patterns)
        .map_err(|error| config.problem_with("commands.blocked_patterns", error.to_string()))?;
    Ok(Guardrails {
        protected: files("guardrails.protected_files", &guardrails.protected_files)?,
        sensitive: files("guardrails.sensitive_files", &guardrails.sensitive_files)?,
        unwritable: UnwritablePaths::default(),
        repositories: Repositories::default(),
        blocked,
        safe: commands.safe_commands.clone(),
        commands: if commands.allowed_only { CommandScope::AllowedOnly } else { CommandScope::All },
        limits: quota_limits(config),
    })
}

/// Returns the limits on changes and commands.
pub(super) fn quota_limits(config: &Config) -> GuardrailLimits {
    let guardrails = &config.settings.guardrails;
    GuardrailLimits {
        files: guardrails.max_files_modified.map(u64::from),
        lines: guardrails.max_lines_changed,
        commands: guardrails.max_commands_executed.map(u64::from),
    }
}

/// The maximum number of letters in which a suggested name differs.
const MAX_DISTANCE: usize = 3;

/// Returns whether this program has a tool of this name, or the name is reserved for tools of servers.
pub(super) fn is_built_in(name: &str) -> bool {
    name.starts_with("mcp_") || names().any(|tool| tool == name)
}

/// Checks the tool names in a rule or a list: names, wildcards, and alternatives separated by bars. An entry with an
/// unknown name would never have an effect, and a missing effect of a deny rule would be noticed too late.
///
/// # Errors
///
/// Fails with a message about a name that no tool has.
fn check_tool_name(entry: &str) -> Result<(), String> {
    let (tools, _) = entry.split_once('(').unwrap_or((entry, ""));
    let is_known = |name: &&str| name.contains('*') || is_built_in(name);
    match tools.split('|').map(str::trim).find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let same = BUILT_IN.iter().find(|tool| tool.aliases.contains(&name));
            let meant =
                same.map(|tool| tool.name).or_else(|| nearest_within(name, names(), MAX_DISTANCE));
            Err(format!("unknown tool `{name}`{}", did_you_mean(meant)))
        }
    }
}

/// Checks that a rule with a pattern is for tools with targets; otherwise the rule would never have an effect.
///
/// # Errors
///
/// Fails with a message about the tool.
fn check_pattern(rule: &str) -> Result<(), String> {
    let Some((tools, pattern)) =
        rule.trim().strip_suffix(')').and_then(|rule| rule.split_once('('))
    else {
        return Ok(());
    };
    let is_whole = |name: &&str| {
        *name == SEARCH_TOOLS || describe(name).is_some_and(|tool| !tool.target.takes_pattern())
    };
    match tools.split('|').map(str::trim).find(is_whole) {
        Some(name) if !matches!(pattern.trim(), "*" | "**") => Err(format!(
            "rule '{rule}': a rule for `{name}` takes no pattern; write `{name}` alone"
        )),
        _ => Ok(()),
    }
}

/// Returns the names of this program's tools, without those of servers.
fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|tool| tool.name).chain([DISPATCH, SEARCH_TOOLS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_tool_has_is_reported_with_the_nearest_one() {
        for entry in ["run_command(git *)", "write_file", "read_file|grep", "mcp_git_*", "*"] {
            assert_eq!(check_tool_name(entry), Ok(()), "{entry}");
        }
        let wrong = |entry| check_tool_name(entry).unwrap_err();
        assert_eq!(
            wrong("run_comand(*)"),
            "unknown tool `run_comand`, did you mean `run_command`?"
        );
        assert_eq!(wrong("grep|Wirte"), "unknown tool `Wirte`");
        // Other agents use this name.
        assert_eq!(wrong("grep|LS"), "unknown tool `LS`, did you mean `list_files`?");
    }

    #[test]
    fn a_pattern_for_a_tool_whose_calls_name_nothing_is_reported() {
        for rule in
            ["read_skill(pdf-*)", "dispatch_subagent(build)", "stop_command(*)", "*(src/**)"]
        {
            assert_eq!(check_pattern(rule), Ok(()), "{rule}");
        }
        for rule in
            ["read_output(x)", "stop_command(1)", "grep|command_input(ls)", "search_tools(x)"]
        {
            assert!(
                check_pattern(rule).is_err_and(|error| error.contains("takes no pattern")),
                "{rule}"
            );
        }
    }
}
