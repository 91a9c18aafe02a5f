//! Options that configure a run and its output.

use std::path::PathBuf;

use architect::types::ConfirmMode;
use architect::view::human::ColorChoice;
use architect::view::report::ReportFormat;
use clap::{Args, ValueEnum};

use super::keys::{KeyOptions, words};
use super::text_path;

/// Sources of the configuration, which also determines the store of the sessions.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct LayerArgs {
    /// The folder to work in; by default the current one
    #[arg(short, long, visible_short_alias = 'C', value_name = "DIR", global = true, value_parser = text_path())]
    pub(crate) workspace: Option<PathBuf>,

    /// An additional configuration file, which overrides the usual ones
    #[arg(short, long, value_name = "FILE", global = true, value_parser = text_path())]
    pub(crate) config: Option<PathBuf>,

    /// The profile of the configuration to use
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) profile: Option<String>,

    /// Set a configuration key, as in `limits.max_steps=10`; the value is a bare word or TOML
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    pub(crate) set: Vec<String>,

    /// Trust this folder's own configuration for this run; `ARCHITECT_TRUST=1` does the same
    #[arg(long, global = true)]
    pub(crate) trust: bool,
}

/// The meaning of `last` as the name of a session.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LastArgs {
    /// Let `last` mean the last session of any folder, not of this one
    #[arg(long, global = true)]
    pub(crate) any_folder: bool,
}

/// Options of a run; each overrides a value of the configuration.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct SettingsArgs {
    #[command(flatten)]
    pub(crate) layers: LayerArgs,

    /// The agent: build, plan, resume, review, or one from the configuration
    #[arg(short, long, value_name = "NAME")]
    pub(crate) agent: Option<String>,

    /// The calls that need confirmation; by default those of the agent's `confirm_mode`
    #[arg(long, visible_alias = "confirm-mode", value_parser = words::<ConfirmMode>())]
    pub(crate) mode: Option<ConfirmMode>,

    /// Describe changes instead of making them. Stays on when the session is resumed; `--dry-run=false` turns it off
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) dry_run: Option<bool>,

    /// Don't use tools of MCP servers. Stays on when the session is resumed; `--disable-mcp=false` turns it off
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) disable_mcp: Option<bool>,

    /// An additional file with MCP servers
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp_config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) keys: KeyOptions<false>,
}

fn exit_code(text: &str) -> Result<u8, &'static str> {
    text.parse().map_err(|_| "expected a whole number from 0 to 255")
}

/// Options of the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// Print nothing but the answer
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Also write the answer to a file; `-` stands for standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,

    /// Write a report of the run; `github` goes to `$GITHUB_STEP_SUMMARY` if that is set
    #[arg(long, value_parser = words::<ReportFormat>())]
    pub(crate) report: Option<ReportFormat>,

    /// The file of the report; its extension decides the format unless --report does. A report for
    /// `$GITHUB_STEP_SUMMARY` is appended
    #[arg(long, value_name = "FILE")]
    pub(crate) report_file: Option<PathBuf>,

    /// Print the cost of the run
    #[arg(long)]
    pub(crate) show_costs: bool,

    /// The exit code of a run that stops early; by default 2
    #[arg(long, value_name = "N", value_parser = exit_code, allow_negative_numbers = true)]
    pub(crate) exit_code_on_partial: Option<u8>,

    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// When to color the log
    #[arg(long, value_parser = words::<ColorChoice>(), default_value = "auto")]
    pub(crate) color: ColorChoice,

    #[command(flatten)]
    pub(crate) keys: KeyOptions<true>,
}

/// Options of the output format.
#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// Print one JSON document at the end
    #[arg(long, conflicts_with = "output_format")]
    json: bool,

    /// The format of standard output
    #[arg(long, value_enum)]
    output_format: Option<OutputFormat>,
}

impl FormatArgs {
    /// Returns the format that was explicitly requested.
    pub(crate) fn asked(&self) -> Option<OutputFormat> {
        self.output_format.or(self.json.then_some(OutputFormat::Json))
    }

    /// Returns the format of standard output.
    pub(crate) fn format(&self) -> OutputFormat {
        self.asked().unwrap_or(OutputFormat::Text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
    StreamJson,
}
