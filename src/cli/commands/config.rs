//! `architect config`: the configuration, and where it comes from.

use architect::app::World;
use architect::config::{Config, FileState, TrustError, TrustStore};
use architect::model::count;

use crate::cli::args::{ConfigArgs, ConfigCommand};
use crate::cli::error::Failure;
use crate::cli::output;
use crate::cli::settings::{self, Remembered};

pub(crate) fn run(args: &ConfigArgs, world: &World) -> Result<u8, Failure> {
    let (config, _) = settings::read(&args.settings, None, world, &Remembered::default())?;
    let text = match args.command {
        ConfigCommand::Show => show(&config),
        ConfigCommand::Check => {
            architect::app::check(&config)?;
            let notices = count(config.notices.len(), "notice", "notices");
            format!("the configuration is right ({notices})\n")
        }
        ConfigCommand::Path => paths(&config),
        ConfigCommand::Trust => {
            trusted(world)?.add(&config.workspace).map_err(|error| unkept(&error))?;
            format!("{} is trusted from now on\n", config.workspace.display())
        }
        ConfigCommand::Untrust => {
            trusted(world)?.remove(&config.workspace).map_err(|error| unkept(&error))?;
            format!("{} is not trusted any more\n", config.workspace.display())
        }
    };
    output::print(&text)?;
    Ok(0)
}

/// Returns the list of the folders that the user trusts.
fn trusted(world: &World) -> Result<TrustStore, Failure> {
    let state = world.folders().state;
    let state = state.ok_or_else(|| {
        Failure::usage("there is no folder to remember it in").hint("set HOME or XDG_STATE_HOME")
    })?;
    Ok(TrustStore::new(&state))
}

fn unkept(error: &TrustError) -> Failure {
    match error {
        TrustError::Folder(..) | TrustError::Unreadable(_) => Failure::usage(error.to_string()),
        TrustError::Unwritable(..) => Failure::failed(error.to_string()),
    }
}

fn show(config: &Config) -> String {
    let lines: Vec<(String, String)> = config
        .shown()
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

fn paths(config: &Config) -> String {
    let line = |file: &architect::config::ConfigFile| {
        let state = match file.state {
            FileState::Absent => "not there",
            FileState::Read => "read",
            FileState::OnlyTightens => "read; only tightens, since the folder is not trusted",
            FileState::LeftOut => "left out, since the folder is not trusted",
        };
        format!("{}  # {state}\n", file.path.display())
    };
    config.files().iter().map(line).collect()
}
