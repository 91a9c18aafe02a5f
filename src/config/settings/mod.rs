//! The settings, as types: a struct for each section, and what each of its keys can be.

mod agents;
mod commands;
mod guardrails;
mod hooks;
mod llm;
mod mcp;
mod run;

use std::collections::BTreeMap;

pub use agents::{AgentSettings, ConfirmMode};
pub use commands::{Commands, Network, Permissions, Sandbox, SandboxMode, Verdict, Workspace};
pub use guardrails::{Guardrails, QualityGate};
pub use hooks::{HookSandbox, HookSettings, Hooks, OnFailure};
pub use llm::{Llm, UnknownPrice};
pub use mcp::{Mcp, McpServer, McpTransport};
pub use run::{
    Context, Costs, Durability, Evaluation, EvaluationMode, Indexer, Language, LimitSettings,
    LogLevel, Logging, Sessions,
};

use super::reader::Reader;
use super::text::Name;

/// The settings of one run. They don't change while it lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The language of the human log.
    pub language: Language,
    /// How models are called.
    pub llm: Llm,
    /// The agents, by name.
    pub agents: BTreeMap<Name, AgentSettings>,
    /// What a run may use.
    pub limits: LimitSettings,
    /// How full the context may get.
    pub context: Context,
    /// How commands run.
    pub commands: Commands,
    /// The folder that the agent works on.
    pub workspace: Workspace,
    /// Which tool calls are allowed.
    pub permissions: Permissions,
    /// How commands are confined.
    pub sandbox: Sandbox,
    /// What a run may change, and what its result has to pass.
    pub guardrails: Guardrails,
    /// The index of the workspace.
    pub indexer: Indexer,
    /// Servers of further tools.
    pub mcp: Mcp,
    /// The user's commands at fixed points of a run.
    pub hooks: Hooks,
    /// What is done with a result.
    pub evaluation: Evaluation,
    /// What models cost.
    pub costs: Costs,
    /// How sessions are stored.
    pub sessions: Sessions,
    /// The technical log.
    pub logging: Logging,
}

impl Settings {
    /// Reads all settings; what is wrong is noted by the reader.
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self {
            language: from.or("language", Language::En),
            llm: from.section("llm", Llm::read),
            agents: from.each("agents", |_, from| AgentSettings::read(from)),
            limits: from.section("limits", LimitSettings::read),
            context: from.section("context", Context::read),
            commands: from.section("commands", Commands::read),
            workspace: from.section("workspace", Workspace::read),
            permissions: from.section("permissions", Permissions::read),
            sandbox: from.section("sandbox", Sandbox::read),
            guardrails: from.section("guardrails", Guardrails::read),
            indexer: from.section("indexer", Indexer::read),
            mcp: from.section("mcp", Mcp::read),
            hooks: from.section("hooks", Hooks::read),
            evaluation: from.section("evaluation", Evaluation::read),
            costs: from.section("costs", Costs::read),
            sessions: from.section("sessions", Sessions::read),
            logging: from.section("logging", Logging::read),
        }
    }
}
