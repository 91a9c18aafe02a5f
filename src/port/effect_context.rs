//! The context in which an effect runs: cancellation, waiting, and messages to the run.

use std::fmt;
use std::sync::Arc;

use super::{CancellationToken, EffectNotice};
use crate::machine::BudgetShare;
use crate::types::{EffectId, MicroUsd, TimeSpan, Usage};

/// The context of a running effect.
#[derive(Clone)]
pub struct EffectContext {
    /// The token that is cancelled once the result of the effect is no longer awaited.
    pub cancel: CancellationToken,
    /// The budget share of the effect, if it makes model calls of its own.
    pub budget: Option<BudgetShare>,
    /// The background command that the effect may leave running, if it may.
    pub command: Option<Arc<CommandLife>>,
    sleep: Arc<dyn Sleep>,
    messages: Option<Arc<EffectMessageSender>>,
}

/// Sends a message to the run while an effect runs.
type EffectMessageSender = dyn Fn(EffectMessage) + Send + Sync;

/// A message of a running effect to its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectMessage {
    /// A notice to show.
    Notice(EffectNotice),
    /// The usage and cost of a model call that counts against the budget share.
    UsageReported(Usage, MicroUsd),
    /// The command that the effect left running has ended.
    CommandEnded(EffectId),
    /// The user aborts the run at a question that the effect asked.
    Abort,
}

/// A command that a call may leave running. It counts as running until the last reference is dropped, which reports its
/// end to the run.
pub struct CommandLife {
    /// Stops the command.
    pub cancel: CancellationToken,
    id: EffectId,
    messages: Arc<EffectMessageSender>,
}

impl Drop for CommandLife {
    fn drop(&mut self) {
        (self.messages)(EffectMessage::CommandEnded(self.id));
    }
}

/// A way to wait: in real time, or on a simulated clock.
pub trait Sleep: Send + Sync {
    /// Waits for this time. Returns `true` early if the token is cancelled.
    fn sleep(&self, span: TimeSpan, cancel: &CancellationToken) -> bool;
}

impl EffectContext {
    /// Creates a context with this token and this way to wait.
    pub fn new(cancel: CancellationToken, sleep: Arc<dyn Sleep>) -> Self {
        Self { cancel, budget: None, command: None, sleep, messages: None }
    }

    /// Returns the context with a receiver of messages.
    pub fn with_messages(self, receive: impl Fn(EffectMessage) + Send + Sync + 'static) -> Self {
        Self { messages: Some(Arc::new(receive)), ..self }
    }

    /// Returns the context with a budget share.
    pub fn with_budget(self, budget: Option<BudgetShare>) -> Self {
        Self { budget, ..self }
    }

    /// Returns the context of a call that may leave a command running. The command has the id of this effect and is
    /// stopped by this token. Without a receiver of messages, the context is unchanged.
    pub fn with_command(mut self, id: EffectId, cancel: CancellationToken) -> Self {
        let messages = self.messages.clone();
        self.command = messages.map(|messages| Arc::new(CommandLife { cancel, id, messages }));
        self
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

    /// Waits for this time. Returns `true` early if the effect is cancelled.
    pub fn sleep(&self, span: TimeSpan) -> bool {
        self.sleep.sleep(span, &self.cancel)
    }
}

impl fmt::Debug for EffectContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectContext").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}
