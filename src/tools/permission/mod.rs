//! Whether a call may run: rules, modes, guardrails, and the user.

mod command;
mod confirm;
mod guardrails;
mod judge;
mod mode;
mod rules;
mod shell;

pub use confirm::{Answer, Confirm, Nobody, Question};
pub use guardrails::Guardrails;
pub use judge::{Decision, Judge};
pub use mode::ConfirmMode;
pub use rules::Rules;
