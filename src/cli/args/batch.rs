//! Options of `architect batch`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::keys::KeyOptions;
use super::{FormatArgs, SettingsArgs};

/// The end of the long help of `batch`.
pub(super) const BATCH_HELP: &str = "\
Tasks are lines of JSON, or [[task]] tables of TOML:
  id, prompt          required
  workspace           the folder to work in; or
  repo, ref           a git repository and a commit; the task gets its own worktree
  agent, model        as --agent and --model
  setup, checks       shell commands before and after the run; a failed check ends it as partial
  limits, set         tables of settings: limits.KEY, and any key
Variants are lines of JSON, or [[variant]] tables: id, and any of model, agent, prompt ({{prompt}} stands for the \
task's), limits, set. Every task runs in every variant.

--budget, --max-tokens and --timeout limit all tasks together; `limits` of a task limits that task.

The folder of --out has results.jsonl, report.md, report.html, report.json, report.xml (JUnit), the sessions, and for \
tasks with a repository predictions.jsonl. The same command again skips finished tasks and resumes interrupted ones. \
Several processes can work on the same folder.

Exit codes: 0 all succeeded; 2 some did not; 3 a mistake in the manifest, nothing was started; 130, 143 interrupted.";

#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    /// The file with the tasks; `-` reads standard input
    pub(crate) tasks: String,

    /// The folder of the batch; by default .architect/batch/NAME, where NAME is that of the file
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// The number of tasks that run at the same time; by default one per core
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,

    /// Run every task in each variant of this file
    #[arg(long, value_name = "FILE")]
    pub(crate) variants: Option<PathBuf>,

    /// Run only the I-th of N parts of the tasks, counted from 1
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Shard>,

    /// Run tasks that failed with exit code 1, 4 or 5 again, in new sessions
    #[arg(long)]
    pub(crate) retry_failed: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: BatchOutputArgs,
}

/// Options of the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct BatchOutputArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// Print nothing but the totals
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(flatten)]
    pub(crate) keys: KeyOptions<true>,
}

/// One of several parts of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    index: usize,
    count: usize,
}

impl Shard {
    /// Returns whether the task with this index, counted from zero, belongs to the part.
    pub(crate) fn has(self, index: usize) -> bool {
        index % self.count == self.index - 1
    }
}

impl std::str::FromStr for Shard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').and_then(|(index, count)| {
            Some((index.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
        });
        match numbers {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Self { index, count }),
            _ => Err("expected I/N with 1 ≤ I ≤ N, such as 2/4"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_have_every_task_once() {
        let parts = ["1/3", "2/3", "3/3"].map(|text| text.parse::<Shard>().unwrap());
        for index in 0..10 {
            assert_eq!(parts.iter().filter(|part| part.has(index)).count(), 1, "{index}");
        }
        for wrong in ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
