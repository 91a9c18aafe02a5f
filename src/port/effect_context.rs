//! The scope in which an effect runs: it can be cancelled, it can wait, and it can tell.

use std::fmt;
use std::sync::Arc;

use super::{CancellationToken, EffectNotice};
use crate::machine::BudgetShare;
use crate::model::{MicroUsd, TimeSpan, Usage};

/// What an effect may use while it runs.
#[derive(Clone)]
pub struct EffectContext {
    /// Cancelled when nobody waits for the effect any more.
    pub cancel: CancellationToken,
    /// What the effect may use, when it makes model calls of its own.
    pub budget: Option<BudgetShare>,
    sleep: Arc<dyn Sleep>,
    notices: Option<NoticeSender>,
    messages: Option<EffectMessageSender>,
}

/// A way of telling something while an effect is under way.
pub type NoticeSender = Arc<dyn Fn(EffectNotice) + Send + Sync>;

/// A way of telling the run what it has to know while an effect is under way.
pub type EffectMessageSender = Arc<dyn Fn(EffectMessage) + Send + Sync>;

/// What an effect that is under way has to say to its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectMessage {
    /// A model call used this of the allowance, and cost this.
    UsageReported(Usage, MicroUsd),
    /// The user, asked in the effect, wants the run to end.
    Abort,
}

/// A way of waiting: real, or on a clock that only exists in a test.
pub trait Sleep: Send + Sync {
    /// Waits so long; returns earlier, and true, when the token is cancelled.
    fn sleep(&self, span: TimeSpan, cancel: &CancellationToken) -> bool;
}

impl EffectContext {
    /// Returns a scope with this token and this way of waiting.
    pub fn new(cancel: CancellationToken, sleep: Arc<dyn Sleep>) -> Self {
        Self { cancel, budget: None, sleep, notices: None, messages: None }
    }

    /// Returns the scope with somebody who listens to it.
    pub fn with_notices(self, voice: NoticeSender) -> Self {
        Self { notices: Some(voice), ..self }
    }

    /// Returns the scope with the run at the other end of this line.
    pub fn with_messages(self, line: EffectMessageSender) -> Self {
        Self { messages: Some(line), ..self }
    }

    /// Returns the scope with an allowance.
    pub fn with_budget(self, allowance: Option<BudgetShare>) -> Self {
        Self { budget: allowance, ..self }
    }

    /// Tells the run something. Unlike a notice this is never lost.
    pub fn send(&self, word: EffectMessage) {
        if let Some(line) = &self.messages {
            line(word);
        }
    }

    /// Tells something, if anybody listens.
    pub fn notify(&self, notice: EffectNotice) {
        if let Some(voice) = &self.notices {
            voice(notice);
        }
    }

    /// Waits so long; returns earlier, and true, when the effect is cancelled.
    pub fn sleep(&self, span: TimeSpan) -> bool {
        self.sleep.sleep(span, &self.cancel)
    }
}

impl fmt::Debug for EffectContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}
