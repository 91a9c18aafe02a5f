//! Questions about sessions: statistics, and the conformance of recordings.

use std::path::PathBuf;

use architect::conform::TraceFormat;
use clap::{Args, ValueEnum};

use super::LayerArgs;
use super::keys::words;

pub(super) const CONFORM_HELP: &str = "Exit codes: 0 no violation; 1 a violation; 3 a file can't be read, or is not such a recording.";

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Only sessions that were created since then: a date such as 2026-11-01, or a time before now: 30d, 12h, 90m
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,

    /// The format
    #[arg(long, value_enum, default_value_t = StatsFormat::Text)]
    pub(crate) format: StatsFormat,

    /// Print JSON, as with `--format json`
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    /// Tables
    Text,
    /// One JSON document
    Json,
    /// A self-contained page with plots
    Html,
}

#[derive(Debug, Args)]
pub(crate) struct ConformArgs {
    /// The recordings
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// The program or format that they are from
    #[arg(long, value_parser = words::<TraceFormat>())]
    pub(crate) from: TraceFormat,

    /// Print a JSON document for each recording, one a line
    #[arg(long)]
    pub(crate) json: bool,
}
