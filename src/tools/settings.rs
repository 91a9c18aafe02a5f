//! What the user has set for tools.

use crate::policy::{ConfirmMode, Guardrails, PermissionRules, PolicyEngine};

/// What the user has set for tools.
#[derive(Clone, Debug, Default)]
pub struct ToolSettings {
    /// The tools that the agent may use, `*` standing for any text; none for all of them.
    pub allowed_tools: Option<Vec<String>>,
    /// When the user is asked.
    pub mode: ConfirmMode,
    /// The rules of the user.
    pub rules: PermissionRules,
    /// Limits that no rule can lift.
    pub guardrails: Guardrails,
    /// How commands are run.
    pub commands: CommandSettings,
    /// Whether files may be deleted.
    pub delete: FileDeletion,
    /// Whether calls happen or are only described.
    pub execution: ExecutionMode,
    /// How long the result of a tool may be, in tokens; zero for as long as it is.
    pub max_result_tokens: MaxResultTokens,
}

impl ToolSettings {
    /// Returns the policy engine with these settings.
    pub fn policy_engine(&self) -> PolicyEngine {
        PolicyEngine::new(self.mode, self.rules.clone(), self.guardrails.clone())
    }
}

/// How long a result may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxResultTokens(pub u64);

impl Default for MaxResultTokens {
    fn default() -> Self {
        Self(2_000)
    }
}

/// How commands are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSettings {
    /// Seconds that a command may take when the model does not say.
    pub default_timeout: u64,
    /// Lines of output that the model is shown.
    pub max_output_lines: usize,
}

impl Default for CommandSettings {
    fn default() -> Self {
        Self { default_timeout: 120, max_output_lines: 200 }
    }
}

/// Whether files may be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileDeletion {
    /// They may not; there is no tool for it, and a patch that deletes is refused.
    #[default]
    Refused,
    /// They may.
    Allowed,
}

/// Whether calls happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutionMode {
    /// They do.
    #[default]
    Real,
    /// Only those that read; the others are described.
    DryRun,
}
