//! The commands, a file for each.

mod agents;
mod cleanup;
mod config;
mod demo;
mod doctor;
mod fork;
mod init;
mod message;
mod replay;
mod resume;
mod run;
mod sessions;
mod test;
mod trace;

use architect::app::ProcessEnv;
use architect::journal::MessageKind;
use architect::view::chart;
use clap::CommandFactory;

pub(crate) use run::print_result;

use super::args::{Cli, CliCommand};
use super::error::CliError;
use super::output;

/// Carries a command out, and returns the exit code.
pub(crate) fn run(command: CliCommand, world: ProcessEnv) -> Result<u8, CliError> {
    match command {
        CliCommand::Run(args) => run::run(&args, world),
        CliCommand::Demo(args) => demo::run(&args, world),
        CliCommand::Resume(args) => resume::run(&args, world),
        CliCommand::Fork(args) => fork::run(&args, world),
        CliCommand::Replay(args) => replay::run(&args, &world),
        CliCommand::Sessions(args) => sessions::run(&args, &world),
        CliCommand::Cleanup(args) => cleanup::run(&args, &world),
        CliCommand::Steer(args) => message::run(&args, MessageKind::Steering, &world),
        CliCommand::Followup(args) => message::run(&args, MessageKind::FollowUp, &world),
        CliCommand::Test(args) => test::run(&args, &world),
        CliCommand::Trace(args) => trace::run(&args, &world),
        CliCommand::Machine(args) => {
            output::print(&chart::render(args.format).map_err(CliError::failed)?)
        }
        CliCommand::Agents(args) => agents::run(&args, &world),
        CliCommand::Config(args) => config::run(&args, &world),
        CliCommand::Doctor(args) => doctor::run(&args, &world),
        CliCommand::Init(args) => init::run(&args, &world),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "architect", &mut script);
            output::print(&String::from_utf8_lossy(&script))
        }
    }
}
