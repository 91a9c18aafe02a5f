//! Settings of the tools.

use std::path::PathBuf;

use super::output_store::bytes_for_tokens;
use crate::policy::{ConfirmMode, Guardrails, PermissionRules, PolicyEngine};

/// Settings of the tools.
#[derive(Clone, Debug, Default)]
pub struct ToolSettings {
    /// The tools that the agent may use; `*` matches any text. `None` allows all tools.
    pub allowed_tools: Option<Vec<String>>,
    /// The mode that decides which calls need a confirmation.
    pub mode: ConfirmMode,
    /// The user's permission rules.
    pub rules: PermissionRules,
    /// Limits that no rule overrides.
    pub guardrails: Guardrails,
    /// Settings of commands.
    pub commands: CommandSettings,
    /// The skills outside the workspace.
    pub skills: Vec<SkillFolder>,
    /// Whether tools may delete files.
    pub delete: FileDeletion,
    /// Whether calls run or are only recorded.
    pub execution: ExecutionMode,
    /// The maximum length of a result in tokens; zero for no limit.
    pub max_result_tokens: MaxResultTokens,
}

impl ToolSettings {
    /// Returns the policy engine with these settings.
    pub fn policy_engine(&self) -> PolicyEngine {
        PolicyEngine::new(self.mode, self.rules.clone(), self.guardrails.clone())
    }
}

/// A skill outside the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFolder {
    /// The name of the skill.
    pub name: String,
    /// The folder of the skill, with links resolved.
    pub path: PathBuf,
}

/// The maximum length of a result in tokens; zero for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxResultTokens(pub u64);

impl MaxResultTokens {
    /// Returns whether a text is longer, and so is shortened for the model.
    pub fn is_exceeded(self, text: &str) -> bool {
        bytes_for_tokens(self.0).is_some_and(|most| text.len() > most)
    }
}

impl Default for MaxResultTokens {
    fn default() -> Self {
        Self(2_000)
    }
}

/// Settings of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSettings {
    /// The default timeout in seconds.
    pub default_timeout: u64,
    /// The maximum number of output lines in a result.
    pub max_output_lines: usize,
    /// The maximum number of stored bytes of a command's output, and also of its error output.
    pub max_stored_output: u64,
}

impl Default for CommandSettings {
    fn default() -> Self {
        Self { default_timeout: 120, max_output_lines: 200, max_stored_output: 256 << 20 }
    }
}

/// Whether tools may delete files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileDeletion {
    /// There is no tool for deleting files, and patches that delete files are refused.
    #[default]
    Refused,
    /// Tools may delete files.
    Allowed,
}

/// The calls whose file changes are shown as diffs during the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownDiffs {
    /// Calls that a dry run skips.
    #[default]
    DryRun,
    /// All successful calls.
    All,
}

/// Whether calls are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutionMode {
    /// All calls run.
    #[default]
    Real,
    /// Only calls that read are run; the others are recorded.
    DryRun,
}
