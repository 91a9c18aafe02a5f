//! The commands.

mod acp;
mod batch;
mod batch_emit;
mod compare;
mod config;
mod conform;
mod demo;
mod doctor;
mod loops;
mod machine;
mod man;
mod models;
mod pipeline;
mod resume;
mod run;
mod schema;
mod sessions;
mod skills;
mod stats;
mod stored;
mod test;
mod undo;
mod what_if;
mod what_if_lanes;
mod worktrees;

use architect::app::{ProcessEnv, finish_interrupted};
use architect::journal::MessageKind;

pub(crate) use batch::{BATCH_LIMITS, listen};
pub(crate) use run::print_result;

use super::args::{BatchCommand, CliCommand};
use super::completion;
use super::error::CliError;
use super::output;
use run::with_result_document;

/// Executes a command, and returns the exit code.
pub(crate) fn run(command: CliCommand, world: ProcessEnv) -> Result<u8, CliError> {
    let only_prints = matches!(
        command,
        CliCommand::Completions { .. }
            | CliCommand::Conform(_)
            | CliCommand::Machine(_)
            | CliCommand::Man(_)
            | CliCommand::Schema { .. }
    );
    if !only_prints {
        finish_interrupted(&world);
    }
    match command {
        CliCommand::Run(args) => {
            with_result_document(args.output.format.format(), || run::run(&args, world))
        }
        CliCommand::Demo(args) => demo::run(&args, world),
        CliCommand::Resume(args) => {
            with_result_document(args.output.format.format(), || resume::resume(&args, world))
        }
        CliCommand::Fork(args) => {
            with_result_document(args.output.format.format(), || resume::fork(&args, world))
        }
        CliCommand::Batch(command) => match *command.0 {
            BatchCommand::Run(args) => {
                with_result_document(args.output.format.format(), || batch::run(*args, &world))
            }
            BatchCommand::Emit(emit) => batch_emit::run(emit, &world),
        },
        CliCommand::Compare(args) => {
            with_result_document(args.output.format.format(), || compare::run(*args.0, &world))
        }
        CliCommand::Loop(args) => {
            with_result_document(args.output.format.format(), || loops::run(&args, &world))
        }
        CliCommand::Pipeline(args) => {
            with_result_document(args.output.format.format(), || pipeline::run(*args.0, &world))
        }
        CliCommand::Acp(args) => acp::run(*args.0, world),
        CliCommand::Replay(args) => stored::replay(&args, &world),
        CliCommand::Undo(args) => undo::undo(&args, &world),
        CliCommand::Diff(args) => undo::diff(&args, &world),
        CliCommand::Sessions(args) => sessions::run(&args, &world),
        CliCommand::Export(args) => sessions::export(&args, &world),
        CliCommand::Cleanup(args) => stored::clean_up(&args, &world),
        CliCommand::Worktrees(args) => worktrees::run(&args, &world),
        CliCommand::Steer(args) => stored::send(&args, MessageKind::Steering, &world),
        CliCommand::Followup(args) => stored::send(&args, MessageKind::FollowUp, &world),
        CliCommand::Conform(args) => conform::run(&args),
        CliCommand::WhatIf(args) => what_if::run(&args, &world),
        CliCommand::Stats(args) => stats::run(&args, &world),
        CliCommand::Test(args) => test::run(&args, &world),
        CliCommand::Trace(args) => stored::trace(&args, &world),
        CliCommand::Machine(args) => machine::run(&args, &world),
        CliCommand::Agents(args) => config::list_agents(&args, &world),
        CliCommand::Config(args) => config::run(&args, &world),
        CliCommand::Skills(args) => skills::run(&args, &world),
        CliCommand::Models(args) => models::run(&args, &world),
        CliCommand::Doctor(args) => doctor::run(&args, &world),
        CliCommand::Init(args) => config::init(&args, &world),
        CliCommand::Schema { subject } => schema::print(subject),
        CliCommand::Man(args) => man::run(&args),
        CliCommand::Completions { shell } => {
            let script = completion::script(shell).map_err(CliError::failed)?;
            output::print(&String::from_utf8_lossy(&script))
        }
    }
}
