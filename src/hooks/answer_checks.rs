//! Hooks that look at a final answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::hook_input::HookInput;
use super::hook_list::Hooks;
use crate::machine::CheckResult;
use crate::port::{AnswerChecks, EffectContext};

/// Checks with `stop` hooks behind them: an answer that passed may still be sent back by one.
pub struct HookedAnswerChecks {
    checks: Arc<dyn AnswerChecks>,
    hooks: Arc<Hooks>,
    sent_back: AtomicU32,
}

impl HookedAnswerChecks {
    /// Returns these checks with these hooks behind them.
    pub fn new(checks: Arc<dyn AnswerChecks>, hooks: Arc<Hooks>) -> Self {
        Self { checks, hooks, sent_back: AtomicU32::new(0) }
    }
}

impl AnswerChecks for HookedAnswerChecks {
    fn check(&self, answer: &str, scope: &EffectContext) -> CheckResult {
        let check = match self.checks.check(answer, scope) {
            CheckResult::Passed => {
                let sent_back = self.sent_back.load(Ordering::Relaxed);
                let occasion = HookInput::Stop { answer: answer.into(), sent_back };
                match self.hooks.run(occasion, scope).blocked {
                    Some(blocked) => {
                        let message = format!("[HOOK {}] {}", blocked.hook, blocked.reason);
                        CheckResult::SentBack { message: message.into() }
                    }
                    None => CheckResult::Passed,
                }
            }
            check => check,
        };
        if let CheckResult::SentBack { .. } = check {
            self.sent_back.fetch_add(1, Ordering::Relaxed);
        }
        check
    }
}
