//! Whether a call may run: rules, modes, guardrails, and the user.
//!
//! The [`PolicyEngine`] decides by what a call says that it will do. Its order never changes: what nobody may do
//! ([`Guardrails`], and the commands that are always refused), then the user's [`Rules`] — deny, ask, allow —, then the
//! [`ConfirmMode`]. Where it decides to ask, somebody who can be asked ([`Confirmer`]) has the last word. How much a run
//! does altogether is counted by its [`Quota`].

mod command;
mod command_approval;
mod confirmation;
mod engine;
mod file_patterns;
mod guarded_files;
mod guarded_in_command;
mod guardrails;
mod off_limits;
mod quota;
mod repositories;
mod rules;
mod shell;
mod target;

pub use crate::model::ConfirmMode;
pub use confirmation::{ConfirmationAnswer, ConfirmationRequest, Confirmer, NoConfirmer};
pub use engine::PolicyEngine;
pub use file_patterns::FilePatterns;
pub use guarded_files::{DeniedFiles, ExistingFiles, GuardedFiles};
pub use guardrails::{BlockedCommands, CommandScope, GuardrailError, GuardrailLimits, Guardrails};
pub use off_limits::OffLimits;
pub use quota::{CallUsage, Quota, QuotaUsage};
pub use repositories::Repositories;
pub use rules::{PermissionRule, PermissionRules, RuleError};
pub use target::{CallKind, CallTarget, CommandTarget};

#[cfg(test)]
mod tests;
