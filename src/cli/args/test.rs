//! Scenarios.

use std::path::PathBuf;

use clap::Args;

use super::{LastArgs, LayerArgs};

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Scenarios: files, or folders with files that end in .toml
    #[arg(required_unless_present = "from")]
    pub(crate) paths: Vec<PathBuf>,

    /// Write the expectations anew, as they hold
    #[arg(long)]
    pub(crate) update: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the results for a build server
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Print a scenario made of this session: its replies, tool results and files
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["paths", "update", "json", "junit"])]
    pub(crate) from: Option<String>,

    /// With --from, go on although the journal is damaged, with what comes before the damage
    #[arg(long, requires = "from")]
    pub(crate) partial: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}
