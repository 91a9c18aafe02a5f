//! `architect config`: the configuration with the origins of its values; `architect agents` and `architect init`.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use architect::app::{AppError, ProcessEnv, ResolvedModel};
use architect::config::{
    AgentDefinition, Config, ConfigFile, ConfigFileState, ProjectPreset, SCHEMA_FILE, TrustError,
    TrustStore, profile_names, template,
};
use architect::llm::provider_names;
use architect::types::{ConfirmMode, pluralize};
use architect::workspace::{open_without_links, resolve_inside};
use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::args::{ConfigArgs, ConfigCommand, InitArgs, LayerArgs, ListArgs, SettingsArgs};
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

pub(crate) fn run(args: &ConfigArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let load = || config_options::load_settings(&args.settings, world);
    let text = match args.command {
        ConfigCommand::Show => format_values(&load()?),
        ConfigCommand::Check => {
            let config = load()?;
            check(&config, &args.settings, world)?;
            let notices = pluralize(config.notices.len(), "notice", "notices");
            format!("the configuration is valid ({notices})\n")
        }
        ConfigCommand::Path => format_files(&load()?),
        ConfigCommand::Schema => format!("{:#}\n", architect::config::schema(&provider_names())),
        ConfigCommand::Trust => {
            let config = config_options::load_layers(&args.settings.layers, world)?;
            let folder = &config.workspace;
            trust_store(world)?.add(folder).map_err(trust_failure)?;
            let is_new = |file: &&ConfigFile| {
                matches!(file.state, ConfigFileState::OnlyTightens | ConfigFileState::Skipped)
            };
            let files = config.files.iter().filter(is_new);
            let files: String = files.map(|file| format!("  {}\n", file.path.display())).collect();
            format!("{} is trusted from now on\n{files}", folder.display())
        }
        ConfigCommand::Untrust => {
            let folder = load()?.workspace;
            trust_store(world)?.remove(&folder).map_err(trust_failure)?;
            format!("{} is no longer trusted\n", folder.display())
        }
    };
    output::print(&text)
}

/// Performs the checks of a run: the tools of agents, rules, the model, and the files of profiles.
fn check(config: &Config, args: &SettingsArgs, world: &ProcessEnv) -> Result<(), CliError> {
    architect::app::check_config(config)?;
    if config.settings.llm.model.is_some() {
        ResolvedModel::from_config(config, world)?;
    }
    for name in profile_names(&config.workspace, &world.folders()) {
        let layers = LayerArgs { profile: Some(name), ..args.layers.clone() };
        config_options::load_layers(&layers, world)?;
    }
    Ok(())
}

/// Returns the list of trusted folders.
fn trust_store(world: &ProcessEnv) -> Result<TrustStore, CliError> {
    let state = world.folders().state;
    let state = state.ok_or_else(|| {
        CliError::usage("there is no folder to store the trusted folders in")
            .hint("set HOME or XDG_STATE_HOME")
    })?;
    Ok(TrustStore::new(&state))
}

fn trust_failure(error: TrustError) -> CliError {
    match error {
        TrustError::InvalidFolder(..) | TrustError::ReadFailed(_) => CliError::usage(error),
        TrustError::WriteFailed(..) => CliError::failed(error),
    }
}

fn format_values(config: &Config) -> String {
    let lines: Vec<(String, String)> = config
        .effective_values
        .iter()
        .map(|shown| {
            let value = shown.value().unwrap_or_else(|| "(not set)".to_owned());
            (format!("{} = {value}", shown.key), shown.origin.to_string())
        })
        .collect();
    let most = 72;
    let width = lines.iter().map(|(line, _)| line.chars().count()).filter(|n| *n <= most).max();
    let width = width.unwrap_or(most);
    lines.iter().map(|(line, origin)| format!("{line:<width$}  # {origin}\n")).collect()
}

fn format_files(config: &Config) -> String {
    let line = |file: &ConfigFile| {
        let state = match file.state {
            ConfigFileState::Absent => "not found",
            ConfigFileState::Read => "read",
            ConfigFileState::OnlyTightens => {
                "read; can only tighten yours, since the folder is not trusted"
            }
            ConfigFileState::Skipped => "left out, since the folder is not trusted",
        };
        format!("{}  # {state}\n", file.path.display())
    };
    config.files.iter().map(line).collect()
}

/// `architect agents`: lists the agents.
pub(crate) fn list_agents(args: &ListArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_settings(&args.settings, world)?;
    let text = if args.json {
        let agents: Vec<AgentDocument> = config.agents().map(AgentDocument::from).collect();
        output::to_json(&agents)
    } else {
        let line = |agent: AgentDefinition| {
            format!(
                "{:<12} {}\n{:12} tools: {}; {}; at most {}\n",
                agent.name.as_str(),
                agent.description,
                "",
                agent.allowed_tools.join(", "),
                agent.confirm_mode.as_str(),
                pluralize(agent.max_steps, "step", "steps")
            )
        };
        config.agents().map(line).collect()
    };
    let code = output::print(&text)?;
    architect::app::check_agents(&config).map_err(AppError::from)?;
    Ok(code)
}

/// An agent, as `architect agents --json` lists it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AgentDocument {
    /// The name.
    name: String,
    /// The purpose of the agent, in one line.
    description: String,
    /// The tools that the agent may use; `*` in a name matches any text.
    allowed_tools: Vec<String>,
    /// The tool calls that need the user's confirmation.
    confirm_mode: ConfirmMode,
    /// The maximum number of replies whose tool calls run.
    max_steps: u32,
}

impl From<AgentDefinition> for AgentDocument {
    fn from(agent: AgentDefinition) -> Self {
        Self {
            name: agent.name.to_string(),
            description: agent.description,
            allowed_tools: agent.allowed_tools,
            confirm_mode: agent.confirm_mode,
            max_steps: agent.max_steps,
        }
    }
}

/// `architect init`: writes a commented configuration file for a project.
pub(crate) fn init(args: &InitArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let text = template(args.preset.unwrap_or(ProjectPreset::Plain), &provider_names());
    if args.print {
        return output::print(&text);
    }
    let workspace = args.workspace.clone().unwrap_or_else(|| world.cwd.clone());
    let path = workspace.join(".architect/config.toml");
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::AlreadyExists => CliError::usage(format!("{} exists already", path.display()))
            .hint("`architect init --print` prints the file instead"),
        _ => CliError::failed(format!("could not write {}: {error}", path.display())),
    };
    fs::create_dir_all(&workspace).map_err(failed)?;
    // The author of the repository may have put links there.
    let open = |path: &Path, flags: OFlags| {
        let inside = resolve_inside(&workspace, path)?.ok_or(ErrorKind::PermissionDenied)?;
        if let Some(folder) = inside.parent() {
            fs::create_dir_all(folder)?;
        }
        open_without_links(&inside, flags | OFlags::WRONLY | OFlags::CREATE, 0o666)
    };
    let schema_path = path.with_file_name(SCHEMA_FILE);
    let mut schema_file = open(&schema_path, OFlags::empty()).map_err(|error| {
        CliError::failed(format!("could not write {}: {error}", schema_path.display()))
    })?;
    let mut file = open(&path, OFlags::EXCL).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    let schema = format!("{:#}\n", architect::config::schema(&provider_names()));
    let written = schema_file.set_len(0).and_then(|()| schema_file.write_all(schema.as_bytes()));
    written.map_err(failed)?;
    output::print(&path.display().to_string())?;
    output::print_stderr(
        "Until you trust this folder, its configuration only tightens: `architect config trust`, or for one run `--trust` \
         or, in CI, ARCHITECT_TRUST=1.",
    );
    Ok(0)
}
