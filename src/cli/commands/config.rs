//! `architect config`: the configuration, and where it comes from.

use architect::app::ProcessEnv;
use architect::config::{Config, ConfigFileState, TrustError, TrustStore};
use architect::model::pluralize;

use crate::cli::args::{ConfigArgs, ConfigCommand};
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

pub(crate) fn run(args: &ConfigArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let load = || config_options::load_settings(&args.settings, world);
    let text = match args.command {
        ConfigCommand::Show => format_values(&load()?),
        ConfigCommand::Check => {
            let config = load()?;
            architect::app::check_config(&config)?;
            let notices = pluralize(config.notices.len(), "notice", "notices");
            format!("the configuration is valid ({notices})\n")
        }
        ConfigCommand::Path => format_files(&load()?),
        ConfigCommand::Schema => format!("{:#}\n", architect::config::schema()),
        ConfigCommand::Trust => {
            let folder = load()?.workspace;
            trust_store(world)?.add(&folder).map_err(|error| trust_failure(&error))?;
            format!("{} is trusted from now on\n", folder.display())
        }
        ConfigCommand::Untrust => {
            let folder = load()?.workspace;
            trust_store(world)?.remove(&folder).map_err(|error| trust_failure(&error))?;
            format!("{} is no longer trusted\n", folder.display())
        }
    };
    output::print(&text)
}

/// Returns the list of the folders that the user trusts.
fn trust_store(world: &ProcessEnv) -> Result<TrustStore, CliError> {
    let state = world.folders().state;
    let state = state.ok_or_else(|| {
        CliError::usage("there is no folder to remember it in").hint("set HOME or XDG_STATE_HOME")
    })?;
    Ok(TrustStore::new(&state))
}

fn trust_failure(error: &TrustError) -> CliError {
    match error {
        TrustError::InvalidFolder(..) | TrustError::ReadFailed(_) => CliError::usage(error),
        TrustError::WriteFailed(..) => CliError::failed(error),
    }
}

fn format_values(config: &Config) -> String {
    let lines: Vec<(String, String)> = config
        .effective_values()
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
    let line = |file: &architect::config::ConfigFile| {
        let state = match file.state {
            ConfigFileState::Absent => "not there",
            ConfigFileState::Read => "read",
            ConfigFileState::OnlyTightens => "read; only tightens, since the folder is not trusted",
            ConfigFileState::Skipped => "left out, since the folder is not trusted",
        };
        format!("{}  # {state}\n", file.path.display())
    };
    config.files().iter().map(line).collect()
}
