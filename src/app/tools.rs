//! The tools of a run, as the settings have them.

use std::sync::Arc;

use super::mcp;
use super::outputs::Whole;
use super::sandbox::Sandbox;
use super::setup::Effect;
use crate::config::{self, Agent, Config};
use crate::mcp::Servers;
use crate::tools::permission::{Confirm, ConfirmMode};
use crate::tools::{CommandSettings, Delete, MaxTokens, Registry, Settings, standard};
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
) -> Registry {
    let settings = settings(config, agent, effect);
    let mut tools = standard(root, &sandbox.model, &settings);
    tools.extend(mcp::tools(means.servers));
    if !config.settings.commands.enabled {
        tools.retain(|tool| &*tool.spec().name != COMMAND);
    }
    let registry = Registry::new(tools, settings).asking(means.confirm);
    match means.whole {
        Some(whole) => registry.keeping(Arc::new(whole)),
        None => registry,
    }
}

/// What the tools of one run need of it.
pub(super) struct Means<'a> {
    /// Who is asked.
    pub(super) confirm: Arc<dyn Confirm>,
    /// Whose tools there are besides the own ones.
    pub(super) servers: &'a Servers,
    /// Where the whole of long results is kept; none for memory.
    pub(super) whole: Option<Whole>,
}

fn settings(config: &Config, agent: &Agent, effect: Effect) -> Settings {
    let settings = &config.settings;
    let commands = &settings.commands;
    Settings {
        allowed_tools: Some(agent.allowed_tools.clone()),
        mode: match agent.confirm_mode {
            config::ConfirmMode::ConfirmAll => ConfirmMode::ConfirmAll,
            config::ConfirmMode::ConfirmSensitive => ConfirmMode::ConfirmSensitive,
            config::ConfirmMode::Yolo => ConfirmMode::Yolo,
        },
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
        ..Settings::default()
    }
}
