//! The arguments as typed. Parsing opens, looks up and resolves nothing; other modules interpret the arguments.

#![allow(clippy::struct_excessive_bools)] // a flag is what it is

mod acp;
mod batch;
mod compare;
mod deferred;
mod emit;
mod keys;
mod laboratory;
mod loops;
mod pipeline;
mod sessions;
mod settings;

use std::path::PathBuf;

use architect::config::ProjectPreset;
use architect::view::chart::StatechartFormat;
use architect::view::reference_tables;
use clap::builder::{StringValueParser, TypedValueParser};
use clap::{Args, Command, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use acp::ACP_HELP;
pub(crate) use acp::AcpArgs;
use batch::BATCH_HELP;
pub(crate) use batch::*;
use compare::COMPARE_HELP;
pub(crate) use compare::*;
pub(crate) use deferred::Deferred;
pub(crate) use emit::*;
use keys::words;
pub(crate) use laboratory::*;
use laboratory::{CONFORM_HELP, WHAT_IF_HELP};
use loops::LOOP_HELP;
pub(crate) use loops::LoopArgs;
use pipeline::PIPELINE_HELP;
pub(crate) use pipeline::PipelineArgs;
pub(crate) use sessions::*;
pub(crate) use settings::*;

/// Returns a parser for a path that becomes a text in the configuration. It rejects a path that is not UTF-8, because
/// the text would be a different path.
fn text_path() -> impl TypedValueParser<Value = PathBuf> {
    StringValueParser::new().map(PathBuf::from)
}

/// Returns the table of the ends of a run: stop reasons with their status, exit codes and meaning.
fn exit_code_table() -> String {
    let table = reference_tables::stop_reasons().to_text();
    format!("{table}141 is also the exit code of every command whose standard output was closed.")
}

/// A headless coding agent for CI, cron, pipes and terminals.
#[derive(Debug, Parser)]
#[command(
    name = "architect",
    version,
    max_term_width = 120,
    after_help = "Exit codes: 0 done; 1 failed; 2 stopped early, partial; 3 usage or configuration; 4 authentication; \
                  5 model timed out; 129, 130, 143 interrupted; 141 standard output closed. `architect run --help` has \
                  the whole table."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

impl Cli {
    /// Returns the command line with all arguments of all commands, as the help shows it.
    pub(crate) fn all_commands() -> Command {
        let mut program = Self::command();
        program.build();
        program
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run one task
    #[command(visible_alias = "exec", after_long_help = exit_code_table())]
    Run(Deferred<RunArgs>),
    /// Run a demonstration in a temporary workspace: no key, no network, real tools and a real test
    Demo(Deferred<DemoArgs>),
    /// Resume a stored session
    Resume(Deferred<ResumeArgs>),
    /// Continue a copy of a session; the original does not change
    Fork(Deferred<ForkArgs>),
    /// Run many tasks, in one or more variants; the same command again resumes them
    #[command(after_long_help = BATCH_HELP)]
    Batch(Deferred<BatchCommand>),
    /// Run one task in several variants, each on its own branch, and choose the best one
    #[command(after_long_help = COMPARE_HELP)]
    Compare(Deferred<CompareArgs>),
    /// Repeat a task with a new context each time, until its checks pass or to improve a number
    #[command(name = "loop", after_long_help = LOOP_HELP)]
    Loop(Deferred<LoopArgs>),
    /// Run the steps of a file in order, each in its own session; the same command again resumes
    #[command(after_long_help = PIPELINE_HELP)]
    Pipeline(Deferred<PipelineArgs>),
    /// Serve an editor over the Agent Client Protocol, on standard input and output
    #[command(after_long_help = ACP_HELP)]
    Acp(Deferred<AcpArgs>),
    /// Replay a stored session offline and check it
    Replay(Deferred<ReplayArgs>),
    /// Restore the files that a session has changed
    Undo(Deferred<UndoArgs>),
    /// Print the changes of a session, as a patch for `git apply`
    Diff(Deferred<DiffArgs>),
    /// List, show, search, export, import or remove stored sessions
    Sessions(Deferred<SessionsArgs>),
    /// Write a session to standard output: as JSON lines, or as a trajectory for other tools
    Export(Deferred<ExportArgs>),
    /// Remove old sessions
    Cleanup(Deferred<CleanupArgs>),
    /// List, merge or remove isolated worktrees
    Worktrees(Deferred<WorktreesArgs>),
    /// Send a message to a running session, which reads it before its next model call
    Steer(Deferred<MessageArgs>),
    /// Queue a follow-up message for a running session
    Followup(Deferred<MessageArgs>),
    /// Run test scenarios: scripted models, with expectations of the run
    Test(Deferred<TestArgs>),
    /// Show where a session spent its time
    Trace(Deferred<TraceArgs>),
    /// Show statistics over all stored sessions: outcomes, time, cost, tools
    Stats(Deferred<StatsArgs>),
    /// Replay stored sessions with other settings, or run them again with another model, agent or task
    #[command(after_long_help = WHAT_IF_HELP)]
    WhatIf(Deferred<WhatIfArgs>),
    /// Check recorded sessions of other programs against the invariants of a run
    #[command(after_long_help = CONFORM_HELP)]
    Conform(Deferred<ConformArgs>),
    /// Print the statechart that a run follows
    Machine(Deferred<MachineArgs>),
    /// List the agents
    Agents(Deferred<ListArgs>),
    /// List the skills, with their folders, descriptions and problems
    Skills(Deferred<ListArgs>),
    /// List the known models: context window, output limit, price, efforts
    Models(Deferred<ModelsArgs>),
    /// Show or check the configuration, or trust the configuration of a folder
    Config(Deferred<ConfigArgs>),
    /// Diagnose the installation and configuration
    Doctor(Deferred<DoctorArgs>),
    /// Write a commented configuration file into this project
    Init(Deferred<InitArgs>),
    /// Print the JSON Schema of a document that architect reads or writes
    Schema {
        /// The document
        #[arg(value_enum)]
        subject: SchemaSubject,
    },
    /// Print a man page
    Man(Deferred<ManArgs>),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The task; `-` reads standard input, `@FILE` reads a file
    pub(crate) prompt: Option<String>,

    /// Append standard input to the task (it is never read otherwise)
    #[arg(long)]
    pub(crate) stdin: bool,

    #[command(flatten)]
    pub(crate) images: ImageArgs,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Make a plan with the `plan` agent first, then carry it out
    #[arg(long)]
    pub(crate) plan_first: bool,

    /// Require a final answer in JSON that satisfies this JSON Schema
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,

    /// Record the raw exchange with the model in a file, without secrets; `--model replay/FILE` replays it
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// Give the model the diff since this git revision
    #[arg(long, value_name = "REF")]
    pub(crate) context_git_diff: Option<String>,

    /// Work in a new git worktree on the branch architect/NAME; without git, in a copy of the folder
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) worktree: Option<String>,

    /// Copy uncommitted changes into the worktree
    #[arg(long, requires = "worktree")]
    pub(crate) with_changes: bool,

    /// The id of the session, a UUID; generated by default
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// Don't store the session
    #[arg(long, conflicts_with = "session")]
    pub(crate) ephemeral: bool,
}

/// Images for the model.
#[derive(Debug, Default, Args)]
pub(crate) struct ImageArgs {
    /// Give the model an image with the task: PNG, JPEG, GIF or WebP (repeatable)
    #[arg(long = "image", id = "image", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the workspace, and print its path
    #[arg(long)]
    pub(crate) keep: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// The format
    #[arg(long, value_parser = words::<StatechartFormat>(), default_value = "mermaid")]
    pub(crate) format: StatechartFormat,

    /// Print upper bounds for a run with this configuration: model calls, cost, time and steps
    #[arg(long, conflicts_with = "format")]
    pub(crate) bounds: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Only the models of this provider
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,

    /// Ask a provider which models the key can use; by default the provider of the configured model
    #[arg(long)]
    pub(crate) online: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Send one small request to the model, and connect to remote MCP servers
    #[arg(long)]
    pub(crate) online: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The action
    #[arg(value_enum, default_value = "show")]
    pub(crate) command: ConfigCommand,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigCommand {
    /// Print every key with its value and the origin of the value
    Show,
    /// Report problems; exits with 3 if there are any
    Check,
    /// Print the configuration files, and whether each was read
    Path,
    /// Print the JSON Schema of configuration files
    Schema,
    /// Trust this folder from now on: its own configuration applies in full
    Trust,
    /// Stop trusting this folder: its own configuration can only tighten yours
    Untrust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaSubject {
    /// The document of a run with `--json`, and the last line of `--output-format stream-json`
    Result,
    /// A line of `--output-format stream-json`
    Event,
    /// A configuration file
    Config,
    /// A scenario of `architect test`
    Scenario,
    /// A manifest of `architect batch`, or a file of variants
    Manifest,
    /// `agents --json`
    Agents,
    /// `cleanup --json`
    Cleanup,
    /// A line of `conform --json`
    Conform,
    /// `diff --json`
    Diff,
    /// `doctor --json`
    Doctor,
    /// `models --json`
    Models,
    /// `replay --json`, with and without `--verify`
    Replay,
    /// `sessions --json`
    Sessions,
    /// `sessions costs --json`
    SessionsCosts,
    /// `sessions import --json`
    SessionsImport,
    /// `sessions rm --json`
    SessionsRm,
    /// `sessions search --json`
    SessionsSearch,
    /// `sessions show --json`
    SessionsShow,
    /// `skills --json`
    Skills,
    /// `stats --json`
    Stats,
    /// `test --json`
    Test,
    /// `test --from-all --json`
    TestFromAll,
    /// `trace --json`
    Trace,
    /// A line of `what-if --json`
    WhatIf,
    /// `worktrees --json`
    Worktrees,
    /// `worktrees merge --json`
    WorktreesMerge,
    /// `worktrees rm --json`
    WorktreesRm,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command, such as `run`; without it, the page of the program
    pub(crate) command: Option<String>,

    /// Write the pages of the program and of all its commands into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The kind of project
    #[arg(long, value_parser = words::<ProjectPreset>())]
    pub(crate) preset: Option<ProjectPreset>,

    /// The folder of the project
    #[arg(short, long, visible_short_alias = 'C', value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Print the file instead of writing it
    #[arg(long)]
    pub(crate) print: bool,
}
