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
mod mail;
mod replay;
mod resume;
mod run;
mod sessions;
mod test;
mod trace;

use architect::app::World;
use architect::journal::LetterKind;

pub(crate) use run::refuse;

use super::args::Command;
use super::error::Failure;

/// Carries a command out, and returns the exit code.
pub(crate) fn run(command: Command, world: World) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(&args, world),
        Command::Demo(args) => demo::run(&args, world),
        Command::Resume(args) => resume::run(&args, world),
        Command::Fork(args) => fork::run(&args, world),
        Command::Replay(args) => replay::run(&args, &world),
        Command::Sessions(args) => sessions::run(&args, &world),
        Command::Cleanup(args) => cleanup::run(&args, &world),
        Command::Steer(args) => mail::run(&args, LetterKind::Steering, &world),
        Command::Followup(args) => mail::run(&args, LetterKind::FollowUp, &world),
        Command::Test(args) => test::run(&args, &world),
        Command::Trace(args) => trace::run(&args, &world),
        Command::Machine(args) => machine::run(&args),
        Command::Agents(args) => agents::run(&args, &world),
        Command::Config(args) => config::run(&args, &world),
        Command::Doctor(args) => doctor::run(&args, &world),
        Command::Init(args) => init::run(&args, &world),
        Command::Completions { shell } => completions::run(shell),
    }
}
