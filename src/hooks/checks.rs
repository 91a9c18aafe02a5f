//! Hooks that look at a final answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::list::Hooks;
use super::occasion::Occasion;
use crate::machine::Check;
use crate::port::{Checks, Scope};

/// Checks with `stop` hooks behind them: an answer that passed may still be sent back by one.
pub struct HookedChecks {
    checks: Arc<dyn Checks>,
    hooks: Arc<Hooks>,
    sent_back: AtomicU32,
}

impl HookedChecks {
    /// Returns these checks with these hooks behind them.
    pub fn new(checks: Arc<dyn Checks>, hooks: Arc<Hooks>) -> Self {
        Self { checks, hooks, sent_back: AtomicU32::new(0) }
    }
}

impl Checks for HookedChecks {
    fn check(&self, answer: &str, scope: &Scope) -> Check {
        let check = match self.checks.check(answer, scope) {
            Check::Passed => {
                let sent_back = self.sent_back.load(Ordering::Relaxed);
                let occasion = Occasion::Stop { answer: answer.into(), sent_back };
                match self.hooks.pass(occasion, scope).blocked {
                    Some(blocked) => {
                        let message = format!("[HOOK {}] {}", blocked.hook, blocked.reason);
                        Check::SentBack { message: message.into() }
                    }
                    None => Check::Passed,
                }
            }
            check => check,
        };
        if let Check::SentBack { .. } = check {
            self.sent_back.fetch_add(1, Ordering::Relaxed);
        }
        check
    }
}
