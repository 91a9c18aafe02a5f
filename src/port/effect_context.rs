//! The context in which an effect runs: cancellation, waiting, and messages to the run.

use std::fmt;
use std::sync::Arc;

use super::{CancellationToken, EffectNotice};
use crate::machine::BudgetShare;
use crate::types::{MicroUsd, TimeSpan, Usage};

/// What an effect can use while it runs.
#[derive(Clone)]
pub struct EffectContext {
    /// Cancelled once the result of the effect isn't awaited any more.
    pub cancel: CancellationToken,
    /// What the effect may use, if it makes model calls of its own.
    pub budget: Option<BudgetShare>,
    sleep: Arc<dyn Sleep>,
    messages: Option<Arc<EffectMessageSender>>,
}

/// Sends a message to the run while an effect runs.
type EffectMessageSender = dyn Fn(EffectMessage) + Send + Sync;

/// A message of a running effect to its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectMessage {
    /// Something to be shown.
    Notice(EffectNotice),
    /// The usage and cost of a model call that counts against the budget share.
    UsageReported(Usage, MicroUsd),
    /// The user, asked during the effect, aborts the run.
    Abort,
}

/// A way to wait: in real time, or on a simulated clock.
pub trait Sleep: Send + Sync {
    /// Waits for this time. Returns early, and `true`, if the token is cancelled.
    fn sleep(&self, span: TimeSpan, cancel: &CancellationToken) -> bool;
}

impl EffectContext {
    /// Returns a context with this token and this way to wait.
    pub fn new(cancel: CancellationToken, sleep: Arc<dyn Sleep>) -> Self {
        Self { cancel, budget: None, sleep, messages: None }
    }

    /// Returns the context with a receiver of messages.
    pub fn with_messages(self, receive: impl Fn(EffectMessage) + Send + Sync + 'static) -> Self {
        Self { messages: Some(Arc::new(receive)), ..self }
    }

    /// Returns the context with a budget share.
    pub fn with_budget(self, budget: Option<BudgetShare>) -> Self {
        Self { budget, ..self }
    }

    /// Sends a message to the run, if there is a receiver.
    pub fn send(&self, message: EffectMessage) {
        if let Some(receive) = &self.messages {
            receive(message);
        }
    }

    /// Sends a notice, if there is a receiver.
    pub fn notify(&self, notice: EffectNotice) {
        self.send(EffectMessage::Notice(notice));
    }

    /// Waits for this time. Returns early, and `true`, if the effect is cancelled.
    pub fn sleep(&self, span: TimeSpan) -> bool {
        self.sleep.sleep(span, &self.cancel)
    }
}

impl fmt::Debug for EffectContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectContext").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}
