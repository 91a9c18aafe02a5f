//! `architect init`: a commented configuration file for a project.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};

use architect::app::ProcessEnv;
use architect::config::{ProjectPreset, template};

use crate::cli::args::InitArgs;
use crate::cli::error::CliError;
use crate::cli::output;

pub(crate) fn run(args: &InitArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let text = template(args.preset.unwrap_or(ProjectPreset::Plain));
    if args.print {
        return output::print(&text);
    }
    let workspace = args.workspace.clone().unwrap_or_else(|| world.cwd.clone());
    let path = workspace.join(".architect/config.toml");
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => CliError::usage(format!("{} exists already", path.display()))
            .hint("`architect init --print` prints the file instead"),
        _ => CliError::failed(format!("could not write {}: {error}", path.display())),
    };
    fs::create_dir_all(workspace.join(".architect")).map_err(failed)?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    output::print(&path.display().to_string())?;
    output::print_stderr(
        "Until you trust this folder, its configuration only tightens: `architect config trust`, or for one run `--trust` \
         or, in CI, ARCHITECT_TRUST=1.",
    );
    Ok(0)
}
