//! Arguments as they are typed. What they mean is decided elsewhere: here nothing is opened, looked up or resolved.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

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
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Carry out one task, to the end
    #[command(visible_alias = "exec", after_long_help = crate::cli::help::exit_codes())]
    Run(Box<RunArgs>),
    /// Show a whole run on a throw-away workspace: no key, no network, real tools and a real test
    Demo(DemoArgs),
    /// Print the statechart that a run follows
    Machine(MachineArgs),
    /// List the agents
    Agents(ListArgs),
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

/// What configures a run; each of these overrides a value of the configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct SettingsArgs {
    /// The model, as PROVIDER/NAME: openai, openai-chat, anthropic, gemini, ollama, openrouter, scripted/FILE,
    /// replay/FILE; or a name that the model table knows
    #[arg(short, long, value_name = "PROVIDER/NAME")]
    pub(crate) model: Option<String>,

    /// Another endpoint of the same wire format
    #[arg(long, value_name = "URL")]
    pub(crate) api_base: Option<String>,

    /// The environment variable that holds the key
    #[arg(long, value_name = "NAME")]
    pub(crate) api_key_env: Option<String>,

    /// The agent: build, plan, resume, review, or one of the configuration
    #[arg(short, long, value_name = "NAME")]
    pub(crate) agent: Option<String>,

    /// What has to be confirmed; the agent decides when it is not given
    #[arg(long, visible_alias = "confirm-mode", value_enum)]
    pub(crate) mode: Option<Mode>,

    /// The folder to work in
    #[arg(short, long, visible_short_alias = 'C', value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Another configuration file, read after the usual ones
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// A profile of the configuration
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// One value of the configuration, as in `limits.max_steps=10`
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Trust this folder's own configuration
    #[arg(long)]
    pub(crate) trust: bool,

    /// Steps that may be made (replies whose tools run); 0 is a limit
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<u32>,

    /// Money that may be spent, in US dollars
    #[arg(long, value_name = "USD")]
    pub(crate) budget: Option<f64>,

    /// Tokens that may be used, input and output together
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,

    /// Seconds that the whole run may take, its closing included
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,

    /// Seconds that one model call may take, its retries included
    #[arg(long, value_name = "SECONDS")]
    pub(crate) step_timeout: Option<f64>,

    /// Describe everything that would change something, instead of doing it
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// How commands are confined
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<Sandbox>,

    /// Whether commands may use the network
    #[arg(long, value_enum)]
    pub(crate) network: Option<Network>,

    /// Allow what matches a rule, as in `run_command(git *)`
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,

    /// Deny what matches a rule, as in `write_file(src/**)`
    #[arg(long, value_name = "RULE")]
    pub(crate) deny: Vec<String>,

    /// Don't run commands
    #[arg(long)]
    pub(crate) no_commands: bool,

    /// Don't use tools of MCP servers
    #[arg(long)]
    pub(crate) disable_mcp: bool,

    /// Another file that names MCP servers
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp_config: Option<PathBuf>,

    /// Let a model judge the result: not at all, once, or until it is good
    #[arg(long, value_enum)]
    pub(crate) self_eval: Option<SelfEval>,
}

/// What is printed, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON document at the end
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,

    /// What standard output carries
    #[arg(long, value_enum)]
    pub(crate) output_format: Option<OutputFormat>,

    /// Print nothing but the answer
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Ask for whole replies instead of streams
    #[arg(long)]
    pub(crate) no_stream: bool,

    /// Write the answer to a file too
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,

    /// Write a report of the run
    #[arg(long, value_enum)]
    pub(crate) report: Option<Report>,

    /// Where the report goes; its ending decides the format when --report does not
    #[arg(long, value_name = "FILE")]
    pub(crate) report_file: Option<PathBuf>,

    /// Print what the run cost
    #[arg(long)]
    pub(crate) show_costs: bool,

    /// The exit code when the run stops early (2 otherwise)
    #[arg(long, value_name = "N")]
    pub(crate) exit_code_on_partial: Option<u8>,

    /// Log more; repeat it for still more
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// The level of the technical log
    #[arg(long, value_enum)]
    pub(crate) log_level: Option<LogLevel>,

    /// Write the events of the run to a file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// The language of the human log
    #[arg(long, value_enum)]
    pub(crate) lang: Option<Language>,

    /// When the human log has colours
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) color: Color,
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
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    ConfirmAll,
    ConfirmSensitive,
    Yolo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sandbox {
    ReadOnly,
    WorkspaceWrite,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Network {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SelfEval {
    Off,
    Basic,
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
    StreamJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Report {
    Json,
    Markdown,
    Github,
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    En,
    Es,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChartFormat {
    Mermaid,
    Dot,
    Scxml,
    Json,
}
