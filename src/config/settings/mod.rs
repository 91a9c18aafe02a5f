//! The settings, as types: a struct for each section, and what each of its keys can be.

mod agents;
mod commands;
mod guardrails;
mod hooks;
mod llm;
mod mcp;
mod run;

use std::collections::BTreeMap;

pub use agents::{AgentConfig, ConfirmModeSetting};
pub use commands::{
    CommandsConfig, ExpectedDecision, NetworkSetting, PermissionsConfig, SandboxConfig,
    SandboxModeSetting, WorkspaceConfig,
};
pub use guardrails::{GuardrailsConfig, QualityGate};
pub use hooks::{HookConfig, HookConfinement, HooksConfig, OnFailureSetting};
pub use llm::{LlmConfig, UnknownPricePolicy};
pub use mcp::{McpConfig, McpServerConfig, McpTransportConfig};
pub use run::{
    ContextConfig, CostsConfig, DurabilitySetting, EvaluationConfig, EvaluationMode, IndexerConfig,
    LanguageSetting, LimitsConfig, LogLevel, LoggingConfig, SessionsConfig,
};

use super::settings_reader::SettingsReader;
use super::text_types::ConfigName;

/// The settings of one run. They don't change while it lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The language of the human log.
    pub language: LanguageSetting,
    /// How models are called.
    pub llm: LlmConfig,
    /// The agents, by name.
    pub agents: BTreeMap<ConfigName, AgentConfig>,
    /// What a run may use.
    pub limits: LimitsConfig,
    /// How full the context may get.
    pub context: ContextConfig,
    /// How commands run.
    pub commands: CommandsConfig,
    /// The folder that the agent works on.
    pub workspace: WorkspaceConfig,
    /// Which tool calls are allowed.
    pub permissions: PermissionsConfig,
    /// How commands are confined.
    pub sandbox: SandboxConfig,
    /// What a run may change, and what its result has to pass.
    pub guardrails: GuardrailsConfig,
    /// The index of the workspace.
    pub indexer: IndexerConfig,
    /// Servers of further tools.
    pub mcp: McpConfig,
    /// The user's commands at fixed points of a run.
    pub hooks: HooksConfig,
    /// What is done with a result.
    pub evaluation: EvaluationConfig,
    /// What models cost.
    pub costs: CostsConfig,
    /// How sessions are stored.
    pub sessions: SessionsConfig,
    /// The technical log.
    pub logging: LoggingConfig,
}

impl Settings {
    /// Reads all settings; what is wrong is noted by the reader.
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            language: from.value_or("language", LanguageSetting::En),
            llm: from.section("llm", LlmConfig::read),
            agents: from.named_tables("agents", |_, from| AgentConfig::read(from)),
            limits: from.section("limits", LimitsConfig::read),
            context: from.section("context", ContextConfig::read),
            commands: from.section("commands", CommandsConfig::read),
            workspace: from.section("workspace", WorkspaceConfig::read),
            permissions: from.section("permissions", PermissionsConfig::read),
            sandbox: from.section("sandbox", SandboxConfig::read),
            guardrails: from.section("guardrails", GuardrailsConfig::read),
            indexer: from.section("indexer", IndexerConfig::read),
            mcp: from.section("mcp", McpConfig::read),
            hooks: from.section("hooks", HooksConfig::read),
            evaluation: from.section("evaluation", EvaluationConfig::read),
            costs: from.section("costs", CostsConfig::read),
            sessions: from.section("sessions", SessionsConfig::read),
            logging: from.section("logging", LoggingConfig::read),
        }
    }
}
