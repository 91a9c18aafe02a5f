//! Stored sessions.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{LastArgs, LayerArgs, OutputArgs, SettingsArgs};

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The session: its id, the beginning of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// What else is to be done; `-` reads standard input, `@FILE` reads a file. With it, or after an early end, the
    /// limits of steps and time begin again; --budget and --max-tokens stay totals of the session
    pub(crate) prompt: Option<String>,

    /// Cut off what is damaged before intact records; it is saved beside the journal
    #[arg(long)]
    pub(crate) repair: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The session, and the record after which the copy begins: ID or ID@SEQ; `last` is the last one of this folder
    #[arg(value_name = "SESSION[@SEQ]")]
    pub(crate) session: String,

    /// What is to be done; `-` reads standard input, `@FILE` reads a file
    pub(crate) prompt: Option<String>,

    /// Make the copy, print its id, and don't run it
    #[arg(long, conflicts_with = "prompt")]
    pub(crate) only: bool,

    /// Go on although a journal is damaged, with what comes before the damage
    #[arg(long)]
    pub(crate) partial: bool,

    /// Replace the tool result of this record (the last one of the copy) by a text: FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) tool_result: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The session: its id, the beginning of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// Compare states and effects with the stored ones; the first difference is told, with exit code 1
    #[arg(long)]
    pub(crate) verify: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SessionsCommand>,

    /// Go on although a journal is damaged, with what comes before the damage
    #[arg(long, global = true)]
    pub(crate) partial: bool,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions, newest first
    List {
        /// How many
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one session with its conversation
    Show {
        /// The session: its id, the beginning of it, or `last` for the last one of this folder
        session: String,
    },
    /// Find what was said
    Search {
        /// Words that all have to occur; \"two words\" have to stand together, word* may go on
        text: String,
        /// How many
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: usize,
    },
    /// What was spent, by day, model and purpose
    Costs {
        /// Print the sum of all of it only
        #[arg(long)]
        total: bool,
    },
    /// Write a session as JSON lines to standard output
    Export {
        /// The session: its id, the beginning of it, or `last` for the last one of this folder
        session: String,
    },
    /// Take in a session that was exported, or a conversation of another program
    Import {
        /// The file
        file: PathBuf,
    },
    /// Remove a session
    Rm {
        /// The session: its id or the beginning of it
        session: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Sessions that nobody has written to for so many days; the configuration says when it is not given
    #[arg(long, value_name = "DAYS")]
    pub(crate) older_than: Option<u32>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MessageArgs {
    /// The session: its id, the beginning of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// The message; `-` reads standard input, `@FILE` reads a file
    pub(crate) message: String,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The session: its id, the beginning of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// Write a page with the chart, the timeline and every message instead
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Go on although a journal is damaged, with what comes before the damage
    #[arg(long)]
    pub(crate) partial: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}
