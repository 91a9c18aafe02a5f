//! Stored sessions, and the scenarios made from them.

use std::path::PathBuf;

use architect::model::Sha256Digest;
use clap::{Args, Subcommand, ValueEnum};

use super::{ImageArgs, LastArgs, LayerArgs, OutputArgs, SettingsArgs};

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The session: its id, a prefix of it, or `last` for the last one of this folder
    pub(crate) session: String,

    /// The next task; `-` reads standard input, `@FILE` reads a file. With it, or after an early end, the limits of
    /// steps and time start again; --budget and --max-tokens stay totals of the session
    pub(crate) prompt: Option<String>,

    /// Truncate a journal that is damaged before intact records; what is cut off is saved beside it
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
    /// The session, and the last record to copy: ID or ID@SEQ; `last` is the last one of this folder
    #[arg(value_name = "SESSION[@SEQ]")]
    pub(crate) session: String,

    /// The next task; `-` reads standard input, `@FILE` reads a file
    pub(crate) prompt: Option<String>,

    /// Make the copy, print its id, and don't run it
    #[arg(long, conflicts_with = "prompt")]
    pub(crate) only: bool,

    /// Use what precedes the damage of a damaged journal
    #[arg(long)]
    pub(crate) partial: bool,

    /// Begin in a new worktree, with the files as they were at that record
    #[arg(long)]
    pub(crate) files: bool,

    /// Replace the tool result of the last copied record by the text of this file
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

    /// Go back to just after this record
    #[arg(long, value_name = "SEQ", group = "target")]
    pub(crate) to: Option<u64>,

    /// Go back to before this step
    #[arg(long, value_name = "N", group = "target")]
    pub(crate) step: Option<u32>,

    /// Go back to before the first change; the default is before the last one
    #[arg(long, group = "target")]
    pub(crate) start: bool,

    /// Restore only the files (the default), or rewind only the conversation, in a copy of the session
    #[arg(long, value_enum)]
    pub(crate) only: Option<UndoAxis>,

    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Restore files too that someone else has changed since, and keep a copy of each beside it
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

    /// Only what changed between two records; either may be left out
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

    /// With --verify: fail unless the journal has this SHA-256, which its run has printed
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

    /// Use what precedes the damage of a damaged journal
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
        /// The most to list
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
        /// Words that all have to occur; "two words" have to be adjacent, word* matches any ending
        text: String,
        /// The most to list
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
    /// Import an exported session, or a conversation of another program
    Import {
        /// The file
        file: PathBuf,
    },
    /// Remove a session
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

    /// Use what precedes the damage of a damaged journal
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
    /// Days since a session was last written; by default those of the configuration
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
    /// List the worktrees of this project, with what was done in them
    List,
    /// Merge a worktree into this tree: by fast-forward, or its changes as uncommitted ones. With a conflict, nothing is changed
    Merge {
        /// The worktree, without `architect/`
        name: String,
    },
    /// Remove worktrees and their branches
    Rm {
        /// The worktrees, without `architect/`
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Remove it with work that is nowhere else
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
    /// The session: its id, a prefix of it, or `last` for the last one of this folder; or a file with a trajectory, of
    /// another program too, in the Agent Trajectory Interchange Format: FILE.json
    pub(crate) session: String,

    /// Write an HTML page with the chart, the timeline and every message instead
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Use what precedes the damage of a damaged journal
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

    /// Write scenarios made from the stored sessions into --out: the fewest that take all transitions of the chart that the
    /// sessions took. With a text, of the sessions whose id begins with it, or whose task, agent, model, status or stop
    /// reason contains it
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

    /// With --from, use what precedes the damage of a damaged journal
    #[arg(long, requires = "from")]
    pub(crate) partial: bool,

    #[command(flatten)]
    pub(crate) last: LastArgs,

    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}
