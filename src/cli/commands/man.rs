//! `architect man`: man pages, made from the help.

use std::fs;

use clap::CommandFactory;
use clap_mangen::{Man, generate_to};

use crate::cli::args::{Cli, ManArgs};
use crate::cli::error::CliError;
use crate::cli::output;

pub(crate) fn run(args: &ManArgs) -> Result<u8, CliError> {
    if let Some(folder) = &args.out {
        // The library declares the arguments itself, without those of `help`.
        let program = Cli::command();
        let written = fs::create_dir_all(folder).and_then(|()| generate_to(program, folder));
        return written.map(|()| 0).map_err(|error| {
            CliError::failed(format!("could not write into {}: {error}", folder.display()))
        });
    }
    let program = Cli::all_commands();
    let command = match &args.command {
        None => &program,
        Some(name) => program.find_subcommand(name).ok_or_else(|| {
            CliError::usage(format!("unknown command '{name}'"))
                .hint("`architect --help` lists the commands")
        })?,
    };
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).map_err(CliError::failed)?;
    output::print(&String::from_utf8_lossy(&page))
}
