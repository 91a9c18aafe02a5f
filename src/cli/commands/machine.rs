//! `architect machine`: the statechart that a run follows.

use architect::view::chart;

use crate::cli::args::MachineArgs;
use crate::cli::error::CliError;
use crate::cli::output;

pub(crate) fn run(args: &MachineArgs) -> Result<u8, CliError> {
    let drawn = chart::render(args.format).map_err(|error| CliError::failed(error.to_string()))?;
    output::print(&drawn)?;
    Ok(0)
}
