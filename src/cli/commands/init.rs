//! `architect init`: a commented configuration file for a project.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};

use architect::app::World;
use architect::config::{self, template};

use crate::cli::args::{InitArgs, Preset};
use crate::cli::error::Failure;
use crate::cli::output;

pub(crate) fn run(args: &InitArgs, world: &World) -> Result<u8, Failure> {
    let preset = match args.preset {
        None => config::Preset::Plain,
        Some(Preset::Rust) => config::Preset::Rust,
        Some(Preset::Python) => config::Preset::Python,
        Some(Preset::Node) => config::Preset::Node,
        Some(Preset::Ci) => config::Preset::Ci,
    };
    let text = template(preset);
    if args.print {
        output::print(&text)?;
        return Ok(0);
    }
    let workspace = args.workspace.clone().unwrap_or_else(|| world.cwd.clone());
    let path = workspace.join(".architect/config.toml");
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(format!("{} exists already", path.display()))
            .hint("`architect init --print` prints the file instead"),
        _ => Failure::failed(format!("could not write {}: {error}", path.display())),
    };
    fs::create_dir_all(workspace.join(".architect")).map_err(failed)?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    output::print(&path.display().to_string())?;
    output::complain(
        "Until you trust this folder, its configuration only tightens: `architect config trust`, or for one run `--trust` \
         or, in CI, ARCHITECT_TRUST=1.",
    );
    Ok(0)
}
