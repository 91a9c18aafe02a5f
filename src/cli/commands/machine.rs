//! `architect machine`: the statechart that a run follows.

use architect::view::chart::{self, StatechartFormat};

use crate::cli::args::{ChartFormat, MachineArgs};
use crate::cli::error::CliError;
use crate::cli::output;

pub(crate) fn run(args: &MachineArgs) -> Result<u8, CliError> {
    let format = match args.format {
        ChartFormat::Mermaid => StatechartFormat::Mermaid,
        ChartFormat::Dot => StatechartFormat::Dot,
        ChartFormat::Scxml => StatechartFormat::Scxml,
        ChartFormat::Json => StatechartFormat::Json,
    };
    let drawn = chart::render(format).map_err(|error| CliError::failed(error.to_string()))?;
    output::print(&drawn)?;
    Ok(0)
}
