//! Shell completion of commands and options, and of names that only this machine knows.
//!
//! The script of a shell calls this program again, which then prints candidates instead of running a command.

use std::ffi::OsStr;

use architect::app::{ProcessEnv, open_store};
use architect::config::{Config, keys, profile_names};
use architect::journal::SessionIndex;
use architect::llm::model_table::ModelTable;
use architect::view::sanitize;
use clap::Command;
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use super::args::{Cli, LayerArgs};
use super::config_options::load_layers;

/// The variable that the script of a shell sets for a request. It is not a setting of this program.
const VARIABLE: &str = "_ARCHITECT_COMPLETE";

/// The maximum number of offered sessions.
const MAX_SESSIONS: usize = 50;

/// Answers a request by the script of a shell and ends the process, if the process was started for that.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(command).var(VARIABLE).bin("architect").complete();
}

/// Returns the script that makes a shell use this program for completion.
pub(crate) fn script(shell: Shell) -> std::io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let name = shell.to_string();
    let completer = shells.completer(&name);
    let completer =
        completer.ok_or_else(|| std::io::Error::other(format!("no script for {name}")))?;
    completer.write_registration(VARIABLE, "architect", "architect", "architect", &mut script)?;
    Ok(script)
}

fn command() -> Command {
    with_names(Cli::all_commands())
}

/// Adds the names that only this machine knows.
fn with_names(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let names: fn(&OsStr) -> Vec<CompletionCandidate> = match arg.get_id().as_str() {
            "session" => sessions,
            "agent" => agents,
            "model" => models,
            "profile" => profiles,
            "set" => settings,
            _ => return arg,
        };
        arg.add(ArgValueCompleter::new(names))
    });
    command.mut_subcommands(with_names)
}

/// Returns the candidates that begin with the typed text.
fn candidates(
    typed: &OsStr,
    names: impl Iterator<Item = (String, Option<String>)>,
) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let fitting = names.filter(|(name, _)| name.starts_with(&*typed));
    let candidate = |(name, help): (String, Option<String>)| {
        CompletionCandidate::new(name).help(help.map(Into::into))
    };
    fitting.map(candidate).collect()
}

fn sessions(typed: &OsStr) -> Vec<CompletionCandidate> {
    let rows = || {
        let world = ProcessEnv::current().ok()?;
        let config = load_layers(&LayerArgs::default(), &world).ok()?;
        let store = open_store(&config, &world).ok()?;
        SessionIndex::open(&store).ok()?.list().ok()
    };
    let mut rows = rows().unwrap_or_default();
    rows.truncate(MAX_SESSIONS);
    let names = rows.into_iter().map(|row| {
        let task = sanitize::headline(row.prompt.as_deref().unwrap_or_default(), 60);
        (row.session_id.to_string(), Some(task))
    });
    candidates(typed, std::iter::once(("last".to_owned(), None)).chain(names))
}

fn agents(typed: &OsStr) -> Vec<CompletionCandidate> {
    let config = ProcessEnv::current()
        .ok()
        .and_then(|world| load_layers(&LayerArgs::default(), &world).ok());
    let agents = config.iter().flat_map(Config::agents);
    let names: Vec<_> = agents
        .map(|agent| (agent.name.to_string(), Some(sanitize::headline(&agent.description, 60))))
        .collect();
    candidates(typed, names.into_iter())
}

fn models(typed: &OsStr) -> Vec<CompletionCandidate> {
    let table = ModelTable::built_in();
    candidates(typed, table.names().map(|name| (name, None)))
}

fn profiles(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Ok(world) = ProcessEnv::current() else { return Vec::new() };
    let names = profile_names(&world.cwd, &world.folders());
    candidates(typed, names.into_iter().map(|name| (name, None)))
}

fn settings(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, keys().iter().map(|key| (format!("{}=", key.path.as_str()), None)))
}
