//! Options of `architect loop`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, SettingsArgs};

/// The end of the long help of `loop`.
pub(super) const LOOP_HELP: &str = "\
Each iteration is a new session with a new context, in the same folder. It gets the task, the output of the failing \
checks, and the last answer of the previous iteration. The checks also run before the first iteration: if they pass, \
the loop ends at once. --budget, --max-tokens and --timeout limit the whole loop.

The loop ends when all checks pass, after --iterations, at a limit, or when two iterations in a row change no file. \
With --metric, an iteration that does not improve the number is undone.

The journal and the sessions of the loop are in the folder of --out. The same command again continues where the loop \
stopped, even after a crash; it may have more --iterations or another limit.

Exit codes: 0 the checks pass; 2 they don't, or there are none; 3 usage or configuration; 130, 143 interrupted; \
otherwise the exit code of the session that failed.";

#[derive(Debug, Args)]
pub(crate) struct LoopArgs {
    /// The task; `-` reads standard input, `@FILE` reads a file
    pub(crate) prompt: Option<String>,

    /// Append standard input to the task (it is never read otherwise)
    #[arg(long)]
    pub(crate) stdin: bool,

    /// A shell command that succeeds when the task is done; may be repeated
    #[arg(long, value_name = "CMD")]
    pub(crate) check: Vec<String>,

    /// Repeat until the checks pass; the default with --check
    #[arg(long)]
    pub(crate) until_check: bool,

    /// The maximum number of iterations
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) iterations: u32,

    /// A shell command whose last line of output is the number to improve
    #[arg(long, value_name = "CMD")]
    pub(crate) metric: Option<String>,

    /// A larger number is better
    #[arg(long, conflicts_with = "minimize")]
    pub(crate) maximize: bool,

    /// A smaller number is better
    #[arg(long)]
    pub(crate) minimize: bool,

    /// The folder of the loop; by default .architect/loop/NAME, named by the task and its settings
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Work in a git worktree on the branch architect/NAME; without git, in a copy of the folder
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) worktree: Option<String>,

    /// Copy uncommitted changes into the worktree
    #[arg(long, requires = "worktree")]
    pub(crate) with_changes: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
