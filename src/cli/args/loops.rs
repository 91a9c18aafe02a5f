//! A task that is repeated.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, SettingsArgs};

/// The end of the long help of `loop`.
pub(super) const LOOP_HELP: &str = "\
Each iteration is a session of its own, with a new context, in the same folder. It gets the task, the output of the checks
that fail, and the notes (the last answer) of the iteration before. The checks run first: if they pass, nothing is to be
done. --budget, --max-tokens and --timeout limit the loop as a whole.

The loop ends when all checks pass, after --iterations, at a limit, or when two iterations in a row have changed no file.
With --metric, an iteration that does not improve the number is undone.

Its journal and its sessions are in the folder of --out. The same command again goes on where the loop stopped, however it
stopped; with more --iterations or another limit, too.

Exit codes: 0 the checks pass; 2 they don't, or there are none; 3 usage or configuration; 130, 143 interrupted; else that of the
session that failed.";

#[derive(Debug, Args)]
pub(crate) struct LoopArgs {
    /// The task; `-` reads standard input, `@FILE` reads a file
    pub(crate) prompt: Option<String>,

    /// Append standard input to the task (it is never read otherwise)
    #[arg(long)]
    pub(crate) stdin: bool,

    /// The shell command that succeeds when the task is done; may be repeated
    #[arg(long, value_name = "CMD")]
    pub(crate) check: Vec<String>,

    /// Repeat until the checks pass; that is what --check means anyway
    #[arg(long)]
    pub(crate) until_check: bool,

    /// The maximum number of iterations
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) iterations: u32,

    /// The shell command whose last line of output is a number to improve
    #[arg(long, value_name = "CMD")]
    pub(crate) metric: Option<String>,

    /// A larger number is better
    #[arg(long, conflicts_with = "minimize")]
    pub(crate) maximize: bool,

    /// A smaller number is better
    #[arg(long)]
    pub(crate) minimize: bool,

    /// The folder of the loop; by default .architect/loop/NAME, by the task and what defines it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Work in a git worktree on the branch architect/NAME; without git, in a copy of the folder
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) worktree: Option<String>,

    /// Carry uncommitted changes over into the worktree
    #[arg(long, requires = "worktree")]
    pub(crate) with_changes: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
