//! Confirmation of calls by the user, and answers to questions of servers.

use serde::Deserialize;

use super::{Elicitation, ElicitationAnswer};
use crate::port::EffectContext;
use crate::types::CallId;

/// Asks the user to confirm calls.
pub trait Confirmer: Send + Sync {
    /// Asks, and waits for the answer until the scope is cancelled.
    fn confirm(
        &self,
        question: &ConfirmationRequest<'_>,
        scope: &EffectContext,
    ) -> ConfirmationAnswer;

    /// Returns whether there is a user who can answer questions of servers.
    fn can_answer(&self) -> bool {
        false
    }

    /// Asks a question of a server in a call, and waits for the answer until the scope is cancelled.
    fn answer(&self, _: &Elicitation, _: &CallId, _: &EffectContext) -> ElicitationAnswer {
        ElicitationAnswer::Decline
    }
}

/// A request to confirm a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmationRequest<'a> {
    /// The id of the call.
    pub call: &'a CallId,
    /// The name of the tool.
    pub tool: &'a str,
    /// A one-line summary of the call.
    pub summary: &'a str,
    /// The reason for the request.
    pub reason: &'a str,
    /// The change of files as a unified diff; empty if no file is known to change.
    pub diff: &'a str,
    /// Findings about a command: the programs that it runs, and the files that it writes.
    pub findings: &'a [String],
    /// The arguments, as the text of a JSON object.
    pub arguments: &'a str,
    /// The rule that would allow this and similar calls; `None` if there is none to suggest.
    pub rule: Option<&'a str>,
    /// The reason why the arguments that the user has just edited are invalid.
    pub edit_error: Option<&'a str>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationAnswer {
    /// The call may run.
    Yes,
    /// The call must not run.
    No,
    /// The call must not run, for this reason.
    #[serde(skip)]
    NoBecause(String),
    /// The call may run, and until the run ends all calls that the rule of the request allows.
    #[serde(skip)]
    YesForSession,
    /// The same, and the rule is in the user's configuration now.
    #[serde(skip)]
    YesAlways,
    /// The call is authorized again with these arguments, the text of a JSON object.
    #[serde(skip)]
    Edit(String),
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
