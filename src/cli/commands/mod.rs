//! The commands, a file for each.

mod completions;
mod machine;

use super::args::Command;
use super::error::Failure;

/// Carries a command out, and returns the exit code.
pub(crate) fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Completions { shell } => completions::run(shell),
        _ => Err(Failure::failed("not yet")),
    }
}
