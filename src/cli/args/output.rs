//! What is printed, and where.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::text_path;

/// What is printed, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON document at the end
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,

    /// What standard output carries
    #[arg(long, value_enum)]
    pub(crate) output_format: Option<OutputFormat>,

    /// Print nothing but the answer
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Ask for whole replies instead of streams
    #[arg(long)]
    pub(crate) no_stream: bool,

    /// Write the answer to a file too
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,

    /// Write a report of the run; `github` goes to `$GITHUB_STEP_SUMMARY` when it is set
    #[arg(long, value_enum)]
    pub(crate) report: Option<ReportFormatArg>,

    /// Where the report goes; its ending decides the format when --report does not. A report for
    /// `$GITHUB_STEP_SUMMARY` is added at its end
    #[arg(long, value_name = "FILE")]
    pub(crate) report_file: Option<PathBuf>,

    /// Print what the run cost
    #[arg(long)]
    pub(crate) show_costs: bool,

    /// The exit code when the run stops early (2 otherwise)
    #[arg(long, value_name = "N")]
    pub(crate) exit_code_on_partial: Option<u8>,

    /// Log more; repeat it for still more
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// The level of the technical log
    #[arg(long, value_enum)]
    pub(crate) log_level: Option<LogLevelArg>,

    /// Write the events of the run to a file, as JSON lines
    #[arg(long, value_name = "FILE", value_parser = text_path())]
    pub(crate) log_file: Option<PathBuf>,

    /// The language of the human log
    #[arg(long, value_enum)]
    pub(crate) lang: Option<LanguageArg>,

    /// When the human log has colours
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) color: ColorArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
    StreamJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormatArg {
    Json,
    Markdown,
    Github,
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevelArg {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LanguageArg {
    En,
    Es,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    Auto,
    Always,
    Never,
}
