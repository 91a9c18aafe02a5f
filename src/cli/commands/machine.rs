//! `architect machine`: the statechart that a run follows.

use architect::view::chart::{self, Format};

use crate::cli::args::{ChartFormat, MachineArgs};
use crate::cli::error::Failure;
use crate::cli::output;

pub(crate) fn run(args: &MachineArgs) -> Result<u8, Failure> {
    let format = match args.format {
        ChartFormat::Mermaid => Format::Mermaid,
        ChartFormat::Dot => Format::Dot,
        ChartFormat::Scxml => Format::Scxml,
        ChartFormat::Json => Format::Json,
    };
    let drawn = chart::draw(format).map_err(|error| Failure::failed(error.to_string()))?;
    output::print(&drawn)?;
    Ok(0)
}
