//! Hooks for final answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::hook_input::HookInput;
use super::hook_list::Hooks;
use crate::machine::CheckResult;
use crate::port::{AnswerChecks, EffectContext};

/// Checks of final answers, followed by `stop` hooks, which may reject an answer that has passed the checks.
pub struct HookedAnswerChecks {
    checks: Arc<dyn AnswerChecks>,
    hooks: Arc<Hooks>,
    sent_back: AtomicU32,
}

impl HookedAnswerChecks {
    /// Appends hooks to checks.
    pub fn new(checks: Arc<dyn AnswerChecks>, hooks: Arc<Hooks>) -> Self {
        Self { checks, hooks, sent_back: AtomicU32::new(0) }
    }
}

impl AnswerChecks for HookedAnswerChecks {
    fn check(&self, answer: &str, scope: &EffectContext) -> CheckResult {
        let mut check = self.checks.check(answer, scope);
        if check == CheckResult::Passed {
            let sent_back = self.sent_back.load(Ordering::Relaxed);
            let input = HookInput::Stop { answer: answer.into(), sent_back };
            if let Some(blocked) = self.hooks.run(input, scope).blocked {
                let message = format!("[HOOK {}] {}", blocked.hook, blocked.reason);
                check = CheckResult::SentBack { message: message.into() };
            }
        }
        if let CheckResult::SentBack { .. } = check {
            self.sent_back.fetch_add(1, Ordering::Relaxed);
        }
        check
    }
}
