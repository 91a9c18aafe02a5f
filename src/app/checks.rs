//! Checks of a final answer, one after the other.

use std::sync::Arc;

use crate::machine::CheckResult;
use crate::port::{AnswerChecks, EffectContext};

/// Several checks; the first one that an answer does not pass decides.
pub(super) struct CheckSequence(pub(super) Vec<Arc<dyn AnswerChecks>>);

impl AnswerChecks for CheckSequence {
    fn check(&self, answer: &str, scope: &EffectContext) -> CheckResult {
        for check in &self.0 {
            match check.check(answer, scope) {
                CheckResult::Passed => {}
                other => return other,
            }
        }
        CheckResult::Passed
    }
}
