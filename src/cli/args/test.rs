//! Scenarios.

use std::path::PathBuf;

use clap::Args;

use super::{LastArgs, LayerArgs};

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Scenarios: files, or folders with files that end in .toml
    #[arg(required_unless_present = "from")]
    pub(crate) paths: Vec<PathBuf>,

    /// Update the expectations to what was observed
    #[arg(long)]
    pub(crate) update: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the results as XML for a build server
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Print a scenario made from this session: its replies, tool results and files
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["paths", "update", "json", "junit"])]
    pub(crate) from: Option<String>,

    /// With --from, use what precedes the damage of a damaged journal
    #[arg(long, requires = "from")]
    pub(crate) partial: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}
