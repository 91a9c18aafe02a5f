//! Whether a call may run: rules, modes, guardrails, and the user.

mod confirm;
mod guardrails;
mod judge;
mod mode;
mod rules;

pub use confirm::{Answer, Confirm, Nobody, Question};
pub use guardrails::Guardrails;
pub use judge::{Decision, Judge};
pub use mode::ConfirmMode;
pub use rules::Rules;
