//! Options of the commands for stored sessions, and for the scenarios made from them.

use std::path::PathBuf;

use architect::types::Sha256Digest;
use clap::{Args, Subcommand, ValueEnum};

use super::{ImageArgs, LastArgs, LayerArgs, OutputArgs, SettingsArgs};

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The session: its id, a prefix of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// The next task; `-` reads standard input, `@FILE` reads a file. With it, or if the last run has ended and was not
    /// killed, the limits of steps and time start again; --budget and --max-tokens always count the whole session
    pub(crate) prompt: Option<String>,

    /// Truncate a journal that is damaged before intact records, and save the removed part beside it
    #[arg(long)]
    pub(crate) repair: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) images: ImageArgs,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The session and, with @SEQ, the last record to copy; `last` is the last session of this folder
    #[arg(value_name = "SESSION[@SEQ]")]
    pub(crate) session: String,

    /// The next task; `-` reads standard input, `@FILE` reads a file
    pub(crate) prompt: Option<String>,

    /// Make the copy, print its id, and don't run it
    #[arg(long, conflicts_with = "prompt")]
    pub(crate) only: bool,

    /// Read a damaged journal up to the damage
    #[arg(long)]
    pub(crate) partial: bool,

    /// Begin in a new worktree, with the files as they were at that record
    #[arg(long)]
    pub(crate) files: bool,

    /// Replace the tool result of the last copied record with the text of this file
    #[arg(long, value_name = "FILE")]
    pub(crate) tool_result: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) images: ImageArgs,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// The session: its id, a prefix of it, or `last` for the last one of this folder
    #[arg(default_value = "last")]
    pub(crate) session: String,

    /// Restore the state just after this record
    #[arg(long, value_name = "SEQ", group = "target")]
    pub(crate) to: Option<u64>,

    /// Restore the state before this step
    #[arg(long, value_name = "N", group = "target")]
    pub(crate) step: Option<u32>,

    /// Restore the state before the first change; the default is before the last change
    #[arg(long, group = "target")]
    pub(crate) start: bool,

    /// Restore only the files (the default), or rewind only the conversation, in a copy of the session
    #[arg(long, value_enum)]
    pub(crate) only: Option<UndoAxis>,

    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Also restore files that someone else has changed since, and keep a copy of each beside it
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UndoAxis {
    /// The files; the conversation stays, and the model is informed when the session is resumed
    Files,
    /// The conversation; the files stay
    Conversation,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The session: its id, a prefix of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// Print only the changes between two records; either may be left out
    #[arg(value_name = "A..B")]
    pub(crate) range: Option<String>,

    /// Print JSON: the patch of each file
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The session: its id, a prefix of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// Compare states, effects, hashes and requests with the stored ones; a difference is reported with exit code 1
    #[arg(long)]
    pub(crate) verify: bool,

    /// With --verify: fail unless the journal has this SHA-256, as printed at the end of the run
    #[arg(long, value_name = "SHA256", requires = "verify")]
    pub(crate) expect_hash: Option<Sha256Digest>,

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

    /// Read a damaged journal up to the damage
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
        /// The maximum number of sessions to list
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one session with its conversation
    Show {
        /// The session: its id, a prefix of it, or `last` for the last one of this folder
        session: String,
    },
    /// Search the messages of all sessions
    Search {
        /// Words that must all occur; "two words" must be adjacent, word* matches any ending
        text: String,
        /// The maximum number of messages to list
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: usize,
    },
    /// Show costs by day, model and purpose
    Costs {
        /// Print only the total
        #[arg(long)]
        total: bool,
    },
    /// Write a session as JSON lines to standard output
    Export {
        /// The session: its id, a prefix of it, or `last` for the last one of this folder
        session: String,
    },
    /// Import a session that `export` has written
    Import {
        /// The file
        file: PathBuf,
    },
    /// Remove a session, with those of its sub-agents and evaluations that are not running
    Rm {
        /// The session: its id or a prefix of it
        session: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The session: its id, a prefix of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// The format
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub(crate) format: ExportFormat,

    /// Read a damaged journal up to the damage
    #[arg(long)]
    pub(crate) partial: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The records of the session, which `sessions import` reads
    Jsonl,
    /// The Agent Trajectory Interchange Format, with the trajectories of sub-agents
    Atif,
}

fn days(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "expected a whole number of days, not negative, such as 30")
}

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Days since a session was last written; by default `sessions.cleanup_after_days`
    #[arg(long, value_name = "DAYS", value_parser = days, allow_negative_numbers = true)]
    pub(crate) older_than: Option<u32>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorktreesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<WorktreesCommand>,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorktreesCommand {
    /// List the worktrees of this project, with their changes
    List,
    /// Merge a worktree into this tree: a fast-forward if possible, otherwise uncommitted changes. A conflict changes
    /// nothing
    Merge {
        /// The worktree, without `architect/`
        name: String,
    },
    /// Remove worktrees and their branches
    Rm {
        /// The worktrees, without `architect/`
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Remove them even if their work is nowhere else
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MessageArgs {
    /// The session: its id, a prefix of it, or `last` for the last one of this folder
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
    /// The session: its id, a prefix of it, or `last` for the last one of this folder; or FILE.json, a trajectory in
    /// the Agent Trajectory Interchange Format, also of another program
    pub(crate) session: String,

    /// Write an HTML page with the chart, the timeline and every message instead
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Read a damaged journal up to the damage
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

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Scenarios: files, or folders with files that end in .toml
    #[arg(required_unless_present_any = ["from", "from_all"])]
    pub(crate) paths: Vec<PathBuf>,

    /// Write the observed results into the expectations
    #[arg(long)]
    pub(crate) update: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    #[arg(long, value_name = "FILE", help = "Write the results as JUnit XML")]
    pub(crate) junit: Option<PathBuf>,

    /// Print a scenario made from this session: its replies, tool results and files
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["paths", "update", "json", "junit"])]
    pub(crate) from: Option<String>,

    /// Write scenarios made from the stored sessions into --out: a minimal set that takes all transitions that the
    /// sessions took. TEXT selects sessions by the beginning of their id, or by task, agent, model, status or stop
    /// reason
    #[arg(
        long,
        value_name = "TEXT",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["paths", "update", "junit", "from"]
    )]
    pub(crate) from_all: Option<String>,

    /// With --from-all, the folder of the scenarios
    #[arg(long, value_name = "DIR", default_value = ".", requires = "from_all")]
    pub(crate) out: PathBuf,

    /// With --from, read a damaged journal up to the damage
    #[arg(long, requires = "from")]
    pub(crate) partial: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}
