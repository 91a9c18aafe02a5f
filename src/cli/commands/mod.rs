//! The commands, a file for each.

mod agents;
mod cleanup;
mod completions;
mod config;
mod demo;
mod doctor;
mod fork;
mod init;
mod machine;
mod message;
mod replay;
mod resume;
mod run;
mod sessions;
mod test;
mod trace;

use architect::app::ProcessEnv;
use architect::journal::MessageKind;

pub(crate) use run::print_refusal;

use super::args::CliCommand;
use super::error::CliError;

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
        CliCommand::Machine(args) => machine::run(&args),
        CliCommand::Agents(args) => agents::run(&args, &world),
        CliCommand::Config(args) => config::run(&args, &world),
        CliCommand::Doctor(args) => doctor::run(&args, &world),
        CliCommand::Init(args) => init::run(&args, &world),
        CliCommand::Completions { shell } => completions::run(shell),
    }
}
