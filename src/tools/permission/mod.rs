//! Whether a call may run: rules, modes, guardrails, and the user.
//!
//! The [`Judge`] decides by what a call says that it will do. Its order never changes: what nobody may do
//! ([`Guardrails`], and the commands that are always refused), then the user's [`Rules`] — deny, ask, allow —, then the
//! [`ConfirmMode`]. Where it decides to ask, somebody who can be asked ([`Confirm`]) has the last word. How much a run
//! does altogether is counted by its [`Quota`].

mod command;
mod confirm;
mod files;
mod guard;
mod guarded;
mod guardrails;
mod judge;
mod mode;
mod off_limits;
mod permit;
mod quota;
mod repository;
mod rules;
mod shell;

pub use confirm::{Answer, Confirm, Nobody, Question};
pub use files::FilePatterns;
pub use guarded::{DeniedFiles, GuardedFiles, Present};
pub use guardrails::{BlockedCommands, CommandScope, GuardrailError, Guardrails, Limits};
pub use judge::{Decision, Judge};
pub use mode::ConfirmMode;
pub use off_limits::OffLimits;
pub use quota::{Quota, Use, Used};
pub use repository::Repositories;
pub use rules::{Rule, RuleError, Rules};

#[cfg(test)]
mod tests;
