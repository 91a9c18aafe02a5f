//! The settings of a run, by section. Each key is declared here, in one place.

mod commands;
mod hooks;
mod llm;
mod mcp;
mod run;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub use commands::{
    CommandsConfig, ExpectedDecision, GuardrailsConfig, PermissionsConfig, QualityGate,
    SandboxConfig, WorkspaceConfig,
};
pub use hooks::{HookConfig, HookConfinement, HooksConfig};
pub use llm::{CostsConfig, EffortChoice, LlmConfig, ModelConfig, UnknownPricePolicy};
pub use mcp::{DeferMode, McpConfig, McpServerConfig, OauthConfig};
pub use run::{
    AgentConfig, CheckpointsConfig, ContextConfig, EvaluationConfig, EvaluationMode, IndexerConfig,
    LimitsConfig, LoggingConfig, SessionsConfig, SkillsConfig,
};

use super::key_declaration::{DefaultValue, Key, default, named_tables, section, table};
use super::key_spec::UntrustedChange::{Allowed, Lower};
use super::key_spec::{Description, option};
use super::settings_reader::SettingsReader;
use super::text_types::ConfigName;
use crate::types::{Language, TimeSpan};

section! {
    /// The settings of one run. They don't change during the run.
    pub struct Settings {
        /// The language of the log.
        language: Language = default(Language::En).untrusted(Allowed).option(option("lang", "LANGUAGE").output()),
        /// Calls of models.
        llm: LlmConfig = table(llm::read),
        /// Your own models, for `--model NAME`. Missing keys are taken from the model table.
        models: BTreeMap<ConfigName, ModelConfig> = named_tables(ModelConfig::read),
        /// Agents. More can be defined in `.architect/agents/*.md`. Missing keys are taken from `build`.
        agents: BTreeMap<ConfigName, AgentConfig> = named_tables(AgentConfig::read),
        /// Limits of one run. 0 is a limit, not "unlimited".
        limits: LimitsConfig = table(LimitsConfig::read),
        /// The context window, and when it is compacted.
        context: ContextConfig = table(ContextConfig::read),
        /// Commands that the model runs.
        commands: CommandsConfig = table(CommandsConfig::read),
        /// The folder that the agent works in.
        workspace: WorkspaceConfig = table(WorkspaceConfig::read),
        /// Rules for tool calls, such as `run_command(git *)` or `write_file(src/**)`. Deny takes precedence over ask, and
        /// ask over allow.
        permissions: PermissionsConfig = table(PermissionsConfig::read),
        /// Confinement of commands.
        sandbox: SandboxConfig = table(SandboxConfig::read),
        /// Limits on changes and commands, and checks of the result.
        guardrails: GuardrailsConfig = table(GuardrailsConfig::read),
        /// The index of the workspace, which gives the system prompt the structure of the project.
        indexer: IndexerConfig = table(IndexerConfig::read),
        /// Skills: instructions for certain tasks, which the model reads when it needs them.
        skills: SkillsConfig = table(SkillsConfig::read),
        /// MCP servers. Those in the project's `.mcp.json` are used too.
        mcp: McpConfig = table(McpConfig::read),
        /// Your own commands at fixed points of a run: `session_start`, `pre_llm_call`, `post_llm_call`,
        /// `pre_tool_use`, `post_tool_use`, `post_edit`, `pre_compact`, `post_compact`, `stop`, `session_end`,
        /// `on_error`. They get JSON on standard input; exit code 2 blocks, with standard error as the reason.
        hooks: HooksConfig = table(HooksConfig::read),
        /// Evaluation of the result by a model.
        evaluation: EvaluationConfig = table(EvaluationConfig::read),
        /// Prices of models.
        costs: CostsConfig = table(CostsConfig::read),
        /// Stored sessions.
        sessions: SessionsConfig = table(SessionsConfig::read),
        /// Recorded states of the workspace, for `architect undo` and `diff`. They are stored with the session.
        checkpoints: CheckpointsConfig = table(CheckpointsConfig::read),
        /// Diagnostic messages, and the file for events.
        logging: LoggingConfig = table(LoggingConfig::read),
    }
}

/// Returns everything that the settings declare.
pub(in crate::config) fn description() -> &'static Description {
    static DESCRIPTION: LazyLock<Description> =
        LazyLock::new(|| SettingsReader::describe(Settings::read));
    &DESCRIPTION
}

const MIN_TIMEOUT: TimeSpan = TimeSpan::from_millis(1);
const DAY: TimeSpan = TimeSpan::from_secs(86_400);

/// Declares a time limit with a default, in seconds.
fn timeout(seconds: u64) -> Key<TimeSpan, DefaultValue<TimeSpan>> {
    default(TimeSpan::from_secs(seconds)).range(MIN_TIMEOUT..=DAY).untrusted(Lower)
}
