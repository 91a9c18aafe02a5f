//! The tools of a run, as the settings have them.

use std::sync::Arc;

use super::mcp;
use super::outputs::Whole;
use super::sandbox::Sandbox;
use super::setup::Effect;
use super::shared::Shared;
use super::subagents::{Crew, dispatching};
use super::tool_names;
use crate::config::{self, Agent, Config, PathPattern, Permissions, Problem};
use crate::machine::Conversation;
use crate::model::{Item, wildcard};
use crate::net::Secrets;
use crate::tools::permission::{
    BlockedCommands, CommandScope, Confirm, ConfirmMode, FilePatterns, Guardrails, Limits,
    OffLimits, Repositories, Rule, Rules, Used,
};
use crate::tools::{CommandSettings, Delete, MaxTokens, READ_OUTPUT, Registry, Settings, standard};
use crate::workspace::Root;

/// The tool that the settings can take away.
const COMMAND: &str = "run_command";

/// Returns the tools of a run.
pub(super) fn of(
    config: &Config,
    agent: &Agent,
    root: &Root,
    sandbox: &Sandbox,
    effect: Effect,
    means: Means<'_>,
) -> Result<Registry, Problem> {
    let mut settings = settings(config, agent, effect)?;
    settings.guardrails.off_limits = OffLimits::of(sandbox.model.policy());
    settings.guardrails.repositories = Repositories::of(&sandbox.model.policy().workspace);
    let mut tools = standard(root, &sandbox.model, &settings);
    if !config.settings.commands.enabled {
        tools.retain(|tool| &*tool.spec().name != COMMAND);
    }
    let foreign: Vec<_> = mcp::tools(&means.shared.servers).collect();
    if let Some(crew) = means.crew {
        let names = tools.iter().chain(&foreign).map(|tool| Arc::clone(&tool.spec().name));
        let has = |tool: &Arc<str>| agent.allowed_tools.iter().any(|own| wildcard(own, tool));
        let names: Vec<Arc<str>> = names.chain([READ_OUTPUT.into()]).filter(has).collect();
        tools.push(dispatching(crew, names));
    }
    tools.extend(foreign);
    let account = means.shared.account.clone();
    let registry =
        Registry::new(tools, settings).asking(means.confirm).sharing(account).hiding(means.secrets);
    Ok(match means.whole {
        Some(whole) => registry.keeping(Arc::new(whole)),
        None => registry,
    })
}

/// What the tools of one run need of it.
pub(super) struct Means<'a> {
    /// Who is asked.
    pub(super) confirm: Arc<dyn Confirm>,
    /// What it has in common with other runs of the task.
    pub(super) shared: &'a Shared,
    /// Where the whole of long results is kept; none for memory.
    pub(super) whole: Option<Whole>,
    /// Who can be dispatched; nobody by who is dispatched.
    pub(super) crew: Option<Crew>,
    /// What no result may contain.
    pub(super) secrets: Secrets,
}

/// Returns what a session has done so far, as far as its limits are concerned.
pub(super) fn used(conversation: &Conversation) -> Used {
    let mut used = Used::default();
    for entry in conversation.entries() {
        let Item::Exchange(exchange) = &entry.item else { continue };
        for (call, result) in exchange.reply().calls().zip(exchange.results()) {
            used.commands += u64::from(&*call.name == COMMAND);
            for change in &result.changes {
                used.files.insert(Arc::clone(&change.path));
                used.lines += change.added + change.removed;
            }
        }
    }
    used
}

/// Returns the settings of the tools.
///
/// # Errors
///
/// Fails when a rule, a pattern or an expression is none.
pub(super) fn settings(
    config: &Config,
    agent: &Agent,
    effect: Effect,
) -> Result<Settings, Problem> {
    let settings = &config.settings;
    let commands = &settings.commands;
    let key = format!("agents.{}.allowed_tools", agent.name);
    for entry in &agent.allowed_tools {
        tool_names::check(entry).map_err(|error| config.problem(&key, error))?;
    }
    Ok(Settings {
        allowed_tools: Some(agent.allowed_tools.clone()),
        mode: match agent.confirm_mode {
            config::ConfirmMode::ConfirmAll => ConfirmMode::ConfirmAll,
            config::ConfirmMode::ConfirmSensitive => ConfirmMode::ConfirmSensitive,
            config::ConfirmMode::Yolo => ConfirmMode::Yolo,
        },
        rules: rules(config)?,
        guardrails: guardrails(config)?,
        commands: CommandSettings {
            default_timeout: commands.default_timeout.0.div_ceil(1_000_000).max(1),
            max_output_lines: commands.max_output_lines as usize,
        },
        delete: if settings.workspace.allow_delete { Delete::Allowed } else { Delete::Refused },
        effect: match effect {
            Effect::Real => crate::tools::Effect::Real,
            Effect::Described => crate::tools::Effect::Described,
        },
        max_result_tokens: MaxTokens(settings.context.max_tool_result_tokens.0),
    })
}

fn rules(config: &Config) -> Result<Rules, Problem> {
    let Permissions { deny, ask, allow, .. } = &config.settings.permissions;
    for (key, texts) in
        [("permissions.deny", deny), ("permissions.ask", ask), ("permissions.allow", allow)]
    {
        for text in texts {
            Rule::parse(text).map_err(|error| config.problem(key, error.to_string()))?;
            tool_names::check(text).map_err(|error| config.problem(key, error))?;
        }
    }
    Rules::parse(deny, ask, allow)
        .map_err(|error| config.problem("permissions.deny", error.to_string()))
}

fn guardrails(config: &Config) -> Result<Guardrails, Problem> {
    let (guardrails, commands) = (&config.settings.guardrails, &config.settings.commands);
    let files = |key: &str, patterns: &[PathPattern]| {
        let texts: Vec<&str> = patterns.iter().map(PathPattern::as_str).collect();
        FilePatterns::parse(&texts).map_err(|error| config.problem(key, error.to_string()))
    };
    let blocked = BlockedCommands::parse(&commands.blocked_patterns)
        .map_err(|error| config.problem("commands.blocked_patterns", error.to_string()))?;
    Ok(Guardrails {
        protected: files("guardrails.protected_files", &guardrails.protected_files)?,
        sensitive: files("guardrails.sensitive_files", &guardrails.sensitive_files)?,
        off_limits: OffLimits::default(),
        repositories: Repositories::default(),
        blocked,
        safe: commands.safe_commands.clone(),
        commands: match commands.allowed_only {
            true => CommandScope::AllowedOnly,
            false => CommandScope::All,
        },
        limits: limits(config),
    })
}

/// Returns how much a task may change.
pub(super) fn limits(config: &Config) -> Limits {
    let guardrails = &config.settings.guardrails;
    Limits {
        files: guardrails.max_files_modified.map(u64::from),
        lines: guardrails.max_lines_changed,
        commands: guardrails.max_commands_executed.map(u64::from),
    }
}
