//! Arguments as they are typed. What they mean is decided elsewhere: here nothing is opened, looked up or resolved.

#![allow(clippy::struct_excessive_bools)] // a flag is what it is

mod output;
mod sessions;
mod settings;
mod test;

use std::path::PathBuf;

use clap::builder::{StringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) use output::*;
pub(crate) use sessions::*;
pub(crate) use settings::*;
pub(crate) use test::*;

/// Returns a parser for a path that becomes a text in the configuration. A path that is not UTF-8 would be another one
/// there, so it is refused.
fn text_path() -> impl TypedValueParser<Value = PathBuf> {
    StringValueParser::new().map(PathBuf::from)
}

/// A headless coding agent for CI, cron, pipes and terminals.
#[derive(Debug, Parser)]
#[command(
    name = "architect",
    version,
    max_term_width = 120,
    after_help = "Exit codes: 0 done; 1 failed; 2 stopped early, partial; 3 usage or configuration; 4 authentication; \
                  5 model timed out;\n129, 130, 143 interrupted; 141 standard output closed. `architect run --help` has \
                  the whole table."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Carry out one task, to the end
    #[command(visible_alias = "exec", after_long_help = crate::cli::help::exit_code_table())]
    Run(Box<RunArgs>),
    /// Show a whole run on a throw-away workspace: no key, no network, real tools and a real test
    Demo(DemoArgs),
    /// Go on with a session, from where it was stored
    Resume(Box<ResumeArgs>),
    /// Go on from a copy of a session; the original stays as it is
    Fork(Box<ForkArgs>),
    /// Fold a session again through the same machine, offline
    Replay(ReplayArgs),
    /// List, show, search, export, import or remove stored sessions
    Sessions(SessionsArgs),
    /// Remove old sessions
    Cleanup(CleanupArgs),
    /// Tell a running session something before its next model call
    Steer(MessageArgs),
    /// Tell a running session something for when it would have ended
    Followup(MessageArgs),
    /// Play scenarios: scripted models, with what is expected of the run
    Test(TestArgs),
    /// Tell where the time of a session went
    Trace(TraceArgs),
    /// Print the statechart that a run follows
    Machine(MachineArgs),
    /// List the agents
    Agents(AgentsArgs),
    /// Show the configuration, check it, or say where it lies
    Config(ConfigArgs),
    /// Say what is wrong with the set-up, and what to do about it
    Doctor(DoctorArgs),
    /// Write a commented configuration file into this project
    Init(InitArgs),
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
    pub(crate) settings: SettingsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Plan first with the `plan` agent, then build by its plan
    #[arg(long)]
    pub(crate) plan_first: bool,

    /// The final answer has to be JSON that satisfies this JSON Schema
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,

    /// Keep the raw exchange with the model in a file, without secrets; `--model replay/FILE` plays it
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// Show the model what changed since this git revision
    #[arg(long, value_name = "REF")]
    pub(crate) context_git_diff: Option<String>,

    /// The id of the session; made when it is not given
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// Don't store the session
    #[arg(long, conflicts_with = "session")]
    pub(crate) ephemeral: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the workspace, and say where it is
    #[arg(long)]
    pub(crate) keep: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// The format
    #[arg(long, value_enum, default_value = "mermaid")]
    pub(crate) format: ChartFormat,
}

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    /// Try the model with its key, by one small request, and the servers that are reached by the network
    #[arg(long)]
    pub(crate) online: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// What to do
    #[arg(value_enum, default_value = "show")]
    pub(crate) command: ConfigCommand,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigCommand {
    /// Every key with its value and where that comes from
    Show,
    /// Say what is wrong, and exit with 3 if anything is
    Check,
    /// The files that are looked for, and what became of each
    Path,
    /// Trust this folder from now on: what its own configuration says holds
    Trust,
    /// Trust this folder no more: its own configuration only tightens
    Untrust,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The kind of project
    #[arg(long, value_enum)]
    pub(crate) preset: Option<PresetArg>,

    /// The folder of the project
    #[arg(short, long, visible_short_alias = 'C', value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Print it instead of writing it
    #[arg(long)]
    pub(crate) print: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PresetArg {
    Rust,
    Python,
    Node,
    Ci,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChartFormat {
    Mermaid,
    Dot,
    Scxml,
    Json,
}
