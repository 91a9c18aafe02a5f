//! `architect config`: the configuration, and where it comes from.

use architect::app::World;
use architect::config::{Config, FileState};

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
            format!("the configuration is right ({} notices)\n", config.notices.len())
        }
        ConfigCommand::Path => paths(&config),
    };
    output::print(&text)?;
    Ok(0)
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
