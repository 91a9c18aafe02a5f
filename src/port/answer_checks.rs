//! The checks of a final answer.

use super::EffectContext;
use crate::machine::CheckResult;

/// The checks of a final answer: its schema, stop hooks, quality gates.
pub trait AnswerChecks: Send + Sync {
    /// Checks an answer.
    fn check(&self, answer: &str, scope: &EffectContext) -> CheckResult;
}

/// Accepts every answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAnswerChecks;

impl AnswerChecks for NoAnswerChecks {
    fn check(&self, _: &str, _: &EffectContext) -> CheckResult {
        CheckResult::Passed
    }
}
