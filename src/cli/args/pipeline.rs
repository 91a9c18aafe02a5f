//! Steps in order.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, SettingsArgs};

/// The end of the long help of `pipeline`.
pub(super) const PIPELINE_HELP: &str = "\
FILE has [[steps]] tables of TOML, which run in order, each in a session of its own:
  name, prompt        required; {{steps.NAME.output}} stands for the answer of an earlier step
  agent, model        as --agent and --model
  when                the condition without which the step is skipped
  checks              shell commands that have to succeed after it
  repeat              the maximum number of iterations, until the checks pass and `until` holds
  until               the condition that has to hold after an iteration
  foreach             a text whose lines are items, such as {{steps.plan.output}}; each has a session, with {{item}} in its
                      prompt; `checks` run after each, and one that fails ends the step
  parallel            how many items run at the same time, each in a worktree of its own; the worktrees are merged at the end
A condition compares two texts with one of ==, !=, <, <=, >, >=, contains, lacks.

--budget, --max-tokens and --timeout limit all steps together. The journal and the sessions are in the folder of --out. The same
command again goes on where the pipeline stopped, however it stopped; steps that are done don't run again.

Exit codes: 0 all steps are done; 2 a step did not reach its goal, or a limit was reached; 3 a mistake in the file, nothing was
started; 130, 143 interrupted; else that of the session that failed.";

#[derive(Debug, Args)]
pub(crate) struct PipelineArgs {
    /// The file with the steps
    pub(crate) file: PathBuf,

    /// The folder of the pipeline; by default .architect/pipeline/NAME, by the file and what defines it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
