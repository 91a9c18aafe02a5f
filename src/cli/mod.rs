//! The binary's own room: arguments as typed, then what they mean; the terminal; errors with hints; exit codes.

mod args;
mod commands;
mod confirm;
mod damage;
mod error;
mod help;
mod logging;
mod output;
mod prompt;
mod settings;
mod show;
mod task;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use architect::runner::catch;
use clap::Parser;
use clap::error::ErrorKind;
use signal_hook::consts::{SIGUSR1, SIGUSR2, SIGXFSZ};

use args::Cli;
use error::Failure;

/// The exit code of wrong usage and wrong configuration.
pub(crate) const USAGE: u8 = 3;

/// Reads the arguments, does what they say, and returns the exit code.
pub(crate) fn main() -> ExitCode {
    // Before any file is touched. A run that can't be told of signals says so when it begins.
    let _ = catch();
    logging::set_up();
    outlive_signals();
    let done = match Cli::try_parse() {
        Ok(cli) => commands::run(cli.command),
        Err(error) => usage(&error),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.code())
        }
    }
}

/// Some signals would end the process, and are no reason for that. A file that may not grow any more is an error of its
/// write, which is told and stored. (A reader that has gone is such an error already.) What users' signals are to mean
/// here, nobody has said.
fn outlive_signals() {
    let nobody_looks = Arc::new(AtomicBool::new(false));
    for signal in [SIGXFSZ, SIGUSR1, SIGUSR2] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&nobody_looks)) {
            log::warn!("signal {signal} would end the process: {error}");
        }
    }
}

/// Prints what clap has to say: help and version are answers, everything else is wrong usage. (clap's own exit code for
/// that, 2, is the one of a partial run here.)
fn usage(error: &clap::Error) -> Result<u8, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::print(&error.render().to_string())?;
            Ok(0)
        }
        _ => {
            output::complain(&error.render().to_string());
            if error.kind() == ErrorKind::InvalidSubcommand {
                output::complain("  hint: a task is given to `run`: architect run \"…\"");
            }
            Ok(USAGE)
        }
    }
}
