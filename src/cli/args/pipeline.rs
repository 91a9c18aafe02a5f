//! Options of `architect pipeline`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, SettingsArgs};

/// The end of the long help of `pipeline`.
pub(super) const PIPELINE_HELP: &str = "\
FILE has [[steps]] tables in TOML, which run in order, each in its own session:
  name, prompt        required; {{steps.NAME.output}} stands for the answer of an earlier step
  agent, model        as --agent and --model
  when                a condition; the step is skipped if it does not hold
  checks              shell commands that must succeed after the step
  repeat              the maximum number of iterations, until the checks pass and `until` holds
  until               a condition that must hold after an iteration
  foreach             a text with one item per line, such as {{steps.plan.output}}; each item has
                      its own session, with {{item}} in its prompt; `checks` run after each item,
                      and a failed one ends the step
  parallel            how many items run at the same time, each in its own worktree; the
                      worktrees are merged at the end
A condition compares two texts with ==, !=, contains or lacks, or two numbers with <, <=, > or >=.

--budget, --max-tokens and --timeout limit all steps together. The journal and the sessions are in the folder of \
--out. The same command again continues where the pipeline stopped, even after a crash; finished steps don't run \
again.

Exit codes: 0 all steps are done; 2 a step did not reach its goal, or a limit was reached; 3 a mistake in the file, \
nothing was started; 130, 143 interrupted; otherwise the exit code of the session that failed.";

#[derive(Debug, Args)]
pub(crate) struct PipelineArgs {
    /// The file with the steps
    pub(crate) file: PathBuf,

    /// The folder of the pipeline; by default .architect/pipeline/NAME, named by the file and its settings
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
