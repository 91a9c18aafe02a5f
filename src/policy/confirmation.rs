//! Asking the user.

use std::sync::Arc;

use crate::port::EffectContext;

/// Somebody who can be asked whether a call may run.
pub trait Confirmer: Send + Sync {
    /// Asks, and waits for the answer; not longer than the scope lasts.
    fn confirm(
        &self,
        question: &ConfirmationRequest<'_>,
        scope: &EffectContext,
    ) -> ConfirmationAnswer;
}

/// What the user is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmationRequest<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The call in one line.
    pub summary: &'a str,
    /// Why the user is asked.
    pub reason: &'a str,
}

/// What the user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfirmationAnswer {
    /// The call may run.
    Yes,
    /// It may not.
    No,
    /// The run is to end.
    Abort,
    /// There is nobody to ask.
    Unavailable,
}

/// Nobody is there. It never waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConfirmer;

impl Confirmer for NoConfirmer {
    fn confirm(&self, _: &ConfirmationRequest<'_>, _: &EffectContext) -> ConfirmationAnswer {
        ConfirmationAnswer::Unavailable
    }
}

impl<C: Confirmer + ?Sized> Confirmer for Arc<C> {
    fn confirm(
        &self,
        question: &ConfirmationRequest<'_>,
        scope: &EffectContext,
    ) -> ConfirmationAnswer {
        (**self).confirm(question, scope)
    }
}
