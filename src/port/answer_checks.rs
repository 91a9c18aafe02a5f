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

/// Returns the reason why a check rejected an answer, for the user; `None` if the answer passed.
pub fn rejection(result: &CheckResult) -> Option<String> {
    match result {
        CheckResult::Passed | CheckResult::FollowUp { .. } => None,
        CheckResult::SchemaViolation { message } => {
            let violations: Vec<&str> =
                message.lines().filter_map(|line| line.strip_prefix("- ")).collect();
            Some(format!("the answer does not satisfy the schema: {}", violations.join("; ")))
        }
        CheckResult::SentBack { message } => {
            let text = message.strip_prefix("[SYSTEM] ").unwrap_or(message);
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
    }
}
