//! Questions about sessions: statistics, and the conformance of recordings.

use std::path::PathBuf;

use architect::conform::TraceFormat;
use clap::{Args, ValueEnum};

use super::keys::words;
use super::{LastArgs, LayerArgs};

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

pub(super) const WHAT_IF_HELP: &str = "\
Examples:
  architect what-if last --set limits.max_steps=5
  architect what-if last --set 'permissions.deny=[\"run_command(git push *)\"]' --json

No model is called: what follows the first difference is as if the model had replied the same.";

#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// The sessions: ids, beginnings of them, or `last` for the last one of this folder
    #[arg(required = true, value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,

    /// A TOML file with a table [permissions]; its rules are added to those of the session
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// Print a JSON document for each session, one a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}
