//! What configures a run: each option overrides a value of the configuration.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use super::text_path;

fn whole<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "expected a whole number, not negative, such as 30")
}

fn dollars(text: &str) -> Result<f64, &'static str> {
    text.parse().map_err(|_| "expected a number of US dollars, such as 0.50")
}

fn seconds(text: &str) -> Result<f64, &'static str> {
    text.parse().map_err(|_| "expected a number of seconds, without a unit, such as 300")
}

/// Where the configuration comes from. The store of the sessions follows from it, too.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct LayerArgs {
    /// The folder to work in; the current one by default
    #[arg(short, long, visible_short_alias = 'C', value_name = "DIR", global = true, value_parser = text_path())]
    pub(crate) workspace: Option<PathBuf>,

    /// Another configuration file, read after the usual ones
    #[arg(short, long, value_name = "FILE", global = true, value_parser = text_path())]
    pub(crate) config: Option<PathBuf>,

    /// A profile of the configuration
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) profile: Option<String>,

    /// One value of the configuration, as in `limits.max_steps=10`: a bare word, or TOML
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    pub(crate) set: Vec<String>,

    /// Trust this folder's own configuration for this run; `ARCHITECT_TRUST=1` does the same
    #[arg(long, global = true)]
    pub(crate) trust: bool,
}

/// How `last` is understood.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LastArgs {
    /// Take `last` as the last session of any folder, not of this one
    #[arg(long, global = true)]
    pub(crate) any_folder: bool,
}

/// What configures a run; each of these overrides a value of the configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct SettingsArgs {
    #[command(flatten)]
    pub(crate) layers: LayerArgs,

    /// The model, as PROVIDER/NAME: openai, openai-chat, anthropic, gemini, ollama, openrouter, groq, deepseek, mistral,
    /// xai, llama-cpp, vllm, scripted/FILE, replay/FILE; or a name that the model table knows
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
    pub(crate) mode: Option<ConfirmModeArg>,

    /// Steps that may be made (replies whose tools run); 0 is a limit
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = whole::<u32>)]
    pub(crate) max_steps: Option<u32>,

    /// Money that may be spent, in US dollars
    #[arg(long, allow_negative_numbers = true, value_name = "USD", value_parser = dollars)]
    pub(crate) budget: Option<f64>,

    /// Tokens that may be used, input and output together
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) max_tokens: Option<u64>,

    /// Seconds that the whole run may take, its closing included
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<f64>,

    /// Seconds that one model call may take, its retries included
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) step_timeout: Option<f64>,

    /// Describe everything that would change something, instead of doing it; a session that was begun so goes on so,
    /// until `--dry-run=false`
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) dry_run: Option<bool>,

    /// How commands are confined
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxModeArg>,

    /// Whether commands may use the network; with `list`, the hosts in `sandbox.allowed_hosts`
    #[arg(long, value_enum)]
    pub(crate) network: Option<NetworkArg>,

    /// Allow what matches a rule, as in `run_command(git *)`
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,

    /// Deny what matches a rule, as in `write_file(src/**)`
    #[arg(long, value_name = "RULE")]
    pub(crate) deny: Vec<String>,

    /// End as partial (exit code 2) when a tool call was denied
    #[arg(long)]
    pub(crate) fail_on_denied: bool,

    /// Don't run commands
    #[arg(long)]
    pub(crate) no_commands: bool,

    /// Don't use tools of MCP servers; a session that was begun so goes on so, until `--disable-mcp=false`
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) disable_mcp: Option<bool>,

    /// Another file that names MCP servers
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp_config: Option<PathBuf>,

    /// Let a model judge the result: not at all, once, or until it is good
    #[arg(long, value_enum)]
    pub(crate) self_eval: Option<EvaluationModeArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfirmModeArg {
    ConfirmAll,
    ConfirmSensitive,
    Yolo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxModeArg {
    ReadOnly,
    WorkspaceWrite,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkArg {
    On,
    List,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EvaluationModeArg {
    Off,
    Basic,
    Full,
}
