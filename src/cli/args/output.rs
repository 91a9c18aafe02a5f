//! What is printed, and where.

use std::path::PathBuf;

use architect::view::human::ColorChoice;
use architect::view::report::ReportFormat;
use clap::{Args, ValueEnum};

use super::keys::{KeyOptions, words};

/// What is printed, and where.
fn exit_code(text: &str) -> Result<u8, &'static str> {
    text.parse().map_err(|_| "expected a whole number from 0 to 255")
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON document at the end
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,

    /// The format of standard output
    #[arg(long, value_enum)]
    pub(crate) output_format: Option<OutputFormat>,

    /// Print nothing but the answer
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Also write the answer to a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,

    /// Write a report of the run; `github` goes to `$GITHUB_STEP_SUMMARY` if that is set
    #[arg(long, value_parser = words::<ReportFormat>())]
    pub(crate) report: Option<ReportFormat>,

    /// The file of the report; its extension decides the format unless --report does. A report for
    /// `$GITHUB_STEP_SUMMARY` is appended
    #[arg(long, value_name = "FILE")]
    pub(crate) report_file: Option<PathBuf>,

    /// Print what the run cost
    #[arg(long)]
    pub(crate) show_costs: bool,

    /// The exit code of a run that stops early; by default 2
    #[arg(long, value_name = "N", value_parser = exit_code, allow_negative_numbers = true)]
    pub(crate) exit_code_on_partial: Option<u8>,

    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// When the human log has colors
    #[arg(long, value_parser = words::<ColorChoice>(), default_value = "auto")]
    pub(crate) color: ColorChoice,

    #[command(flatten)]
    pub(crate) keys: KeyOptions<true>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
    StreamJson,
}
