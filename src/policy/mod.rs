//! Decisions about tool calls: rules, guardrails, modes and the user.
//!
//! The [`PolicyEngine`] decides by the declared effects of a call, in a fixed order: rules that deny; [`Guardrails`],
//! and the commands that are always denied; rules that ask; rules that allow; and if no rule matches, the mode. If the
//! decision is to ask, a [`Confirmer`] asks the user. A [`Quota`] limits the total changes and commands of a run.

mod command_analysis;
mod command_approval;
mod command_file_access;
mod command_findings;
mod confirmation;
mod elicitation;
mod engine;
mod file_patterns;
mod guarded_files;
mod guardrails;
mod quota;
mod repositories;
mod rules;
mod shell;
mod suggested_rule;
mod target;
mod unwritable_paths;

pub use crate::types::ConfirmMode;
pub use command_findings::command_findings;
pub use confirmation::{ConfirmationAnswer, ConfirmationRequest, Confirmer, NoConfirmer};
pub use elicitation::{Elicitation, ElicitationAnswer, ElicitationField, ElicitationType};
pub use engine::PolicyEngine;
pub use file_patterns::FilePatterns;
pub use guarded_files::{DeniedFiles, ExistingFiles, GuardedFiles};
pub use guardrails::{BlockedCommands, CommandScope, GuardrailLimits, Guardrails};
pub use quota::{CallUsage, Quota, QuotaUsage};
pub use repositories::Repositories;
pub use rules::{PermissionRule, PermissionRules, RuleError, RuleTools};
pub use target::{CallKind, CallTarget, CommandTarget};
pub use unwritable_paths::UnwritablePaths;

#[cfg(test)]
mod tests;
