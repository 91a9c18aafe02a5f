//! Options of `architect batch`, and of `architect batch emit`, which writes a batch for a scheduler.

use std::ffi::OsString;
use std::num::NonZeroUsize;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

use super::BatchArgs;

/// A batch to run here, or to write for a scheduler.
#[derive(Debug)]
pub(crate) enum BatchCommand {
    Run(Box<BatchArgs>),
    Emit(EmitCommand),
}

#[derive(Debug, Subcommand)]
enum BatchSubcommand {
    /// Write a batch for a scheduler, where each node runs a part
    #[command(subcommand)]
    Emit(EmitCommand),
}

impl FromArgMatches for BatchCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let Some((_, emit)) = matches.subcommand() else {
            return Box::from_arg_matches(matches).map(Self::Run);
        };
        let BatchSubcommand::Emit(mut command) = BatchSubcommand::from_arg_matches(matches)?;
        let args = match &mut command {
            EmitCommand::Slurm(args) => &mut args.emit,
            EmitCommand::Kubernetes(args) => &mut args.emit,
        };
        args.typed = emit.subcommand().map(|(_, typed)| typed_options(typed)).unwrap_or_default();
        Ok(Self::Emit(command))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for BatchCommand {
    fn augment_args(command: Command) -> Command {
        BatchSubcommand::augment_subcommands(BatchArgs::augment_args(command))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .subcommand_required(false)
            .arg_required_else_help(false)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum EmitCommand {
    /// Write a script that submits a job array with the parts, and a final job for the report
    Slurm(Box<EmitSlurmArgs>),
    /// Write the manifest of an Indexed Job
    Kubernetes(Box<EmitKubernetesArgs>),
}

/// Options for all schedulers.
#[derive(Debug, Args)]
pub(crate) struct EmitArgs {
    /// The arguments of the batch as typed: the tasks, and the options in a fixed order, each in one word with its
    /// value.
    #[arg(skip)]
    pub(crate) typed: Vec<OsString>,

    #[command(flatten)]
    pub(crate) batch: BatchArgs,

    /// The number of parts; each runs on its own node
    #[arg(long, value_name = "N", help_heading = "Scheduler")]
    pub(crate) nodes: NonZeroUsize,
}

#[derive(Debug, Args)]
pub(crate) struct EmitSlurmArgs {
    #[command(flatten)]
    pub(crate) emit: EmitArgs,

    /// An option of sbatch for all jobs, such as --sbatch=--partition=long; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, help_heading = "Scheduler")]
    pub(crate) sbatch: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduler")]
pub(crate) struct EmitKubernetesArgs {
    #[command(flatten)]
    pub(crate) emit: EmitArgs,

    /// The container image, with architect, /bin/sh, and everything that the tasks need
    #[arg(long, value_name = "IMAGE", help_heading = "Scheduler")]
    pub(crate) image: String,

    /// The claim of the volume that all parts share; it must have the content of the current folder
    #[arg(long, value_name = "NAME", default_value = "architect", help_heading = "Scheduler")]
    pub(crate) claim: String,

    /// The mount point of the volume
    #[arg(long, value_name = "DIR", default_value = "/work", help_heading = "Scheduler")]
    pub(crate) mount: String,

    /// The secret with the keys of the models, under the names of their environment variables
    #[arg(long, value_name = "NAME", default_value = "architect", help_heading = "Scheduler")]
    pub(crate) secret: String,

    /// The CPUs of a part
    #[arg(long, value_name = "N", default_value = "2", help_heading = "Scheduler")]
    pub(crate) cpu: String,

    /// The memory of a part
    #[arg(long, value_name = "SIZE", default_value = "4Gi", help_heading = "Scheduler")]
    pub(crate) memory: String,
}

/// Returns the arguments of a batch as typed, for the command line of another batch.
fn typed_options(matches: &ArgMatches) -> Vec<OsString> {
    let command = BatchArgs::augment_args(Command::new("batch"));
    command.get_arguments().flat_map(|argument| typed_words(argument, matches)).collect()
}

/// Returns the typed words of an argument.
fn typed_words(argument: &Arg, matches: &ArgMatches) -> Vec<OsString> {
    let id = argument.get_id().as_str();
    if matches.value_source(id) != Some(ValueSource::CommandLine) {
        return Vec::new();
    }
    let Some(long) = argument.get_long() else {
        return matches.get_raw(id).into_iter().flatten().map(OsString::from).collect();
    };
    let option = format!("--{long}");
    match argument.get_action() {
        ArgAction::SetTrue => vec![option.into()],
        ArgAction::Count => vec![option.into(); usize::from(matches.get_count(id))],
        _ => {
            let values = matches.get_raw(id).into_iter().flatten();
            let word = |value| {
                let mut word = OsString::from(format!("{option}="));
                word.push(value);
                word
            };
            values.map(word).collect()
        }
    }
}
