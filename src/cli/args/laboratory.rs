//! Options for the analysis of sessions: statistics, other settings, and the conformance of recordings.

use std::path::PathBuf;

use architect::conform::TraceFormat;
use clap::{Args, ValueEnum};

use super::keys::words;
use super::{LastArgs, LayerArgs, SettingsArgs};

pub(super) const CONFORM_HELP: &str =
    "Exit codes: 0 no violation; 1 a violation; 3 a file can't be read, or has another format.";

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Only sessions created since then: a date such as 2026-11-01, or a time before now: 30d, 12h, 90m
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,

    /// The format
    #[arg(long, value_enum, default_value_t = StatsFormat::Text)]
    pub(crate) format: StatsFormat,

    /// Print JSON, as with `--format json`
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,

    /// Read a damaged journal up to the damage
    #[arg(long)]
    pub(crate) partial: bool,

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

    /// The program that wrote the recordings, or their format
    #[arg(long, value_parser = words::<TraceFormat>())]
    pub(crate) from: TraceFormat,

    /// Print a JSON document for each recording, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const WHAT_IF_HELP: &str = "\
Examples:
  architect what-if last --set limits.max_steps=5
  architect what-if last --set 'permissions.deny=[\"run_command(git push *)\"]' --json
  architect what-if last --model anthropic/claude-haiku-4-5 --lanes 5 --check 'cargo test'

Without --model, --agent and --prompt, no model is called: after the first difference, the recorded replies are \
reused. With any of them, each session is run again --lanes times, from its beginning or from a record, each lane in a \
fork with a worktree and the files as they were then, within the limits of the session.";

#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// The sessions: ids, prefixes of ids, or `last` for the last one of this folder; with @SEQ, lanes begin just after
    /// that record
    #[arg(required = true, value_name = "SESSION[@SEQ]")]
    pub(crate) sessions: Vec<String>,

    /// A TOML file with a table [permissions]; its rules are added to those of the session
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// Run with this task instead, or, after a record, with this message; `-` reads standard input, `@FILE` reads a file
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,

    /// The number of times that each session is run again [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) lanes: Option<u16>,

    /// A shell command that checks the files of each lane: exit code 0 passes; may be repeated
    #[arg(long = "check", value_name = "CMD")]
    pub(crate) checks: Vec<String>,

    /// Print a JSON document for each session, one per line, and a last one with the mean differences if a model was
    /// called
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}
