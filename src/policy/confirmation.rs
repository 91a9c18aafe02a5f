//! Confirmation of calls by the user.

use serde::Deserialize;

use crate::model::CallId;
use crate::port::EffectContext;

/// Asks the user to confirm calls.
pub trait Confirmer: Send + Sync {
    /// Asks, and waits for the answer until the scope is cancelled.
    fn confirm(
        &self,
        question: &ConfirmationRequest<'_>,
        scope: &EffectContext,
    ) -> ConfirmationAnswer;
}

/// A request to confirm a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmationRequest<'a> {
    /// The call.
    pub call: &'a CallId,
    /// The tool.
    pub tool: &'a str,
    /// The call in one line.
    pub summary: &'a str,
    /// The reason for the request.
    pub reason: &'a str,
    /// The rule that would allow the call, if there is one.
    pub rule: Option<&'a str>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationAnswer {
    /// The call may run.
    Yes,
    /// The call must not run.
    No,
    /// The run must end.
    Abort,
    /// There is no user to ask.
    #[serde(skip)]
    Unavailable,
}

/// A confirmer without a user. It never waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConfirmer;

impl Confirmer for NoConfirmer {
    fn confirm(&self, _: &ConfirmationRequest<'_>, _: &EffectContext) -> ConfirmationAnswer {
        ConfirmationAnswer::Unavailable
    }
}
