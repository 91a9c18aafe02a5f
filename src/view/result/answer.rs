//! The output of a run without an answer. Scripts rely on these sentences; they are not translated.

use std::sync::Arc;

use crate::machine::StopReason;

/// Returns the output of a run: its answer, or a sentence that explains why there is none.
pub(super) fn answer_or_reason(
    reason: StopReason,
    answer: Option<&Arc<str>>,
    error: Option<&str>,
    steps: u32,
) -> Arc<str> {
    if let (None, StopReason::ChecksFailed, Some(error)) = (answer, reason, error) {
        return format!("The agent stopped ({reason}): {error}").into();
    }
    let error = error.unwrap_or("unknown");
    match (answer, reason) {
        (Some(answer), _) => Arc::clone(answer),
        (None, StopReason::UserInterrupt(_)) => "Interrupted by the user.".into(),
        (None, StopReason::LlmError(_)) => format!("Unrecoverable LLM error: {error}").into(),
        (None, StopReason::StoreError) => {
            format!("The session could not be stored: {error}").into()
        }
        (None, StopReason::InternalError) => format!("Internal error: {error}").into(),
        (
            None,
            StopReason::LlmDone
            | StopReason::Closed(_)
            | StopReason::Truncated
            | StopReason::EmptyResponse
            | StopReason::Refused
            | StopReason::InvalidToolCalls
            | StopReason::SchemaNotMet
            | StopReason::ChecksFailed
            | StopReason::EvaluationFailed,
        ) => format!("The agent stopped ({reason}). Steps completed: {steps}.").into(),
    }
}
