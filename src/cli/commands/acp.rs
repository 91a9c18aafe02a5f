//! `architect acp`: serves an editor.

use std::io;
use std::path::Path;
use std::sync::Arc;

use architect::acp::{ConfiguredSession, HostError, ServeEnd, SessionChoice, SessionHost, serve};
use architect::app::{ProcessEnv, RunInterrupts, collect_secrets, open_store};
use architect::journal::{SessionHistory, SessionStore};
use architect::runner::add_receiver;
use architect::types::Signal;
use serde_json::Value;

use super::resume::saved_options;
use crate::cli::USAGE_EXIT_CODE;
use crate::cli::args::{AcpArgs, LastArgs, LayerArgs, SettingsArgs};
use crate::cli::config_options::{self, DEFAULT_AGENT, SavedOptions};
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::{logging, worktree_run};

pub(super) fn run(args: AcpArgs, world: ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_settings(&args.settings, &world)?;
    let secrets = collect_secrets(&config, &world);
    logging::configure(args.verbose, config.settings.logging.level, secrets);
    worktree_run::sweep(&world);
    let interrupts = RunInterrupts::default();
    let stop = interrupts.clone();
    add_receiver(move |signal| stop.interrupt(signal), |_| {}).map_err(CliError::failed)?;
    let host = Arc::new(CommandHost { settings: args.settings, world });
    let end = serve(host, io::stdin(), io::stdout(), &interrupts)
        .map_err(|error| CliError::failed(format!("could not start: {error}")))?;
    Ok(match end {
        ServeEnd::InputClosed => 0,
        ServeEnd::OutputClosed => Signal::Pipe.exit_code(),
        ServeEnd::Interrupted(signal) => signal.exit_code(),
    })
}

/// Configures sessions from the options of the command.
struct CommandHost {
    settings: SettingsArgs,
    world: ProcessEnv,
}

impl CommandHost {
    fn try_configure(&self, choice: &SessionChoice<'_>) -> Result<ConfiguredSession, CliError> {
        let mut args = SettingsArgs { layers: self.layers(choice.folder), ..self.settings.clone() };
        if let Some(agent) = choice.agent {
            // The option was meant for the agent that it was given with.
            args.mode = choice.mode.or(args.mode.filter(|_| agent == self.default_agent()));
            args.agent = Some(agent.to_owned());
        }
        let before = choice.options.map(SavedOptions::from_json);
        let (config, saved) =
            config_options::load_config(&args, None, &self.world, before.as_ref())?;
        if !config.changed.is_empty() {
            return Err(CliError::usage(
                "this folder's own configuration has changed since you trusted it",
            )
            .hint("look at the changes; then `architect config trust` trusts the current files"));
        }
        let (options, has_servers) = (saved.to_json(), !saved.disable_mcp);
        let setup = saved.new_setup(config, self.world.clone())?;
        Ok(ConfiguredSession { setup, options, has_servers })
    }

    fn layers(&self, folder: &Path) -> LayerArgs {
        LayerArgs { workspace: Some(folder.to_owned()), ..self.settings.layers.clone() }
    }
}

impl SessionHost for CommandHost {
    fn configure(&self, choice: &SessionChoice<'_>) -> Result<ConfiguredSession, HostError> {
        self.try_configure(choice).map_err(|error| host_error(&error))
    }

    fn default_agent(&self) -> &str {
        self.settings.agent.as_deref().unwrap_or(DEFAULT_AGENT)
    }

    fn store(&self, folder: &Path) -> Result<SessionStore, HostError> {
        config_options::load_layers(&self.layers(folder), &self.world)
            .and_then(|config| Ok(open_store(&config, &self.world)?))
            .map_err(|error| host_error(&error))
    }

    fn stored_options(&self, folder: &Path, history: &SessionHistory) -> Result<Value, HostError> {
        let layers = self.layers(folder);
        let settings = SettingsArgs { layers, ..self.settings.clone() };
        let last = LastArgs { any_folder: false };
        SessionLookup::open(&settings.layers, last, &self.world)
            .and_then(|stored| {
                saved_options(&stored, history, settings.layers.workspace.as_deref())
            })
            .map(|options| options.to_json())
            .map_err(|error| host_error(&error))
    }
}

fn host_error(error: &CliError) -> HostError {
    match error.code() {
        USAGE_EXIT_CODE => HostError::Usage(error.text()),
        _ => HostError::Failed(error.text()),
    }
}
