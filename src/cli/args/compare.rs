//! Options of `architect compare`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use architect::config::ModelName;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::{BatchOutputArgs, SettingsArgs};

/// The end of the long help of `compare`.
pub(super) const COMPARE_HELP: &str = "\
Each variant works in its own git worktree, on a branch architect/compare-… that starts at the checked-out commit. \
Branches and worktrees stay, even after a merge, until `architect worktrees rm` removes them; those of a variant \
without changes are removed at once. --variants takes the same files as `batch --variants`.

The winner is chosen among the variants that succeeded: the run, every --check and, with --self-eval, the evaluation. \
The first difference decides: the better evaluation (--judge), changes rather than none, lower cost, fewer changed \
lines, the earlier variant.

The model of --judge reads the task, the change and the answer of each variant that succeeded. It has no tools. Its \
calls count towards the same limits; the same command again does not repeat them.

--budget, --max-tokens and --timeout limit all variants together. The same command again skips finished variants and \
resumes interrupted ones; at another commit it starts a new comparison.

Exit codes: 0 all variants succeeded or, with --apply, the winner was merged; 2 some did not, or there is no winner; 1 \
the merge was refused, nothing was changed; 3 a mistake or no git repository, nothing was started; 130, 143 \
interrupted, nothing was merged.";

/// The number of attempts if neither variants nor a number are given.
const DEFAULT_ATTEMPTS: u16 = 2;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The task; `-` reads standard input, `@FILE` reads a file
    pub(crate) prompt: String,

    /// Compare the variants of this file
    #[arg(long, value_name = "FILE", conflicts_with = "attempts")]
    pub(crate) variants: Option<PathBuf>,

    /// Without variants: compare N attempts
    #[arg(long, value_name = "N", default_value_t = DEFAULT_ATTEMPTS,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) attempts: u16,

    /// A shell command that must succeed after the run; may be repeated
    #[arg(long = "check", value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) checks: Vec<String>,

    /// A shell command that prepares each worktree before the run; may be repeated
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) setup: Vec<String>,

    /// Have this model evaluate the change of each variant that succeeded
    #[arg(long = "judge", value_name = "MODEL", value_parser = parse_model)]
    pub(crate) evaluator: Option<ModelName>,

    /// Merge the winner into the workspace at the end, as `architect worktrees merge` does
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(crate) apply: Option<AppliedVariant>,

    /// The folder of the comparison; by default one in .architect/batch, named by the task and the commit
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// The number of variants that run at the same time; by default one per core
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,

    /// Run variants that failed with exit code 1, 4 or 5 again, in new sessions
    #[arg(long)]
    pub(crate) retry_failed: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: BatchOutputArgs,
}

/// A variant to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AppliedVariant {
    /// The best one
    Winner,
}

/// Parses the name of a model.
fn parse_model(text: &str) -> Result<ModelName, &'static str> {
    ModelName::parse(text).ok_or("expected the name of a model, such as anthropic/claude-haiku-4-5")
}
