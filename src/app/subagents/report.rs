//! What the dispatching agent is told of a sub-agent's work.

use crate::app::error::AppError;
use crate::app::run::Ended;
use crate::config::Name;
use crate::machine::{Outcome, Status, StopReason};
use crate::model::{FileChange, ToolStatus, count};
use crate::tools::Output;

/// Returns the answer to the call that sent a sub-agent.
pub(super) fn of(agent: &Name, ended: Result<Ended, AppError>, changes: Vec<FileChange>) -> Output {
    let output = match ended {
        Err(error) => Output::failed(format!("The sub-agent {agent} could not begin: {error}.")),
        Ok(ended) => match ended.outcome() {
            None => Output::failed(format!("The sub-agent {agent} broke down.")),
            Some(outcome) => {
                let run = ended.fold.state.run();
                // With an error, it was a hook that blocked the run.
                let is_denied =
                    outcome.reason == StopReason::ChecksFailed && outcome.error.is_none();
                match is_denied && run.denied > 0 {
                    true => denied(agent, outcome, run.denied),
                    false => answer(agent, outcome, run.steps),
                }
            }
        },
    };
    Output { changes, ..output }
}

/// The user counts denied calls as a failure, so the call that sent the sub-agent counts as one of them.
fn denied(agent: &Name, outcome: &Outcome, calls: u32) -> Output {
    let calls = count(calls, "tool call", "tool calls");
    let said = outcome.output.as_deref().unwrap_or_default().trim();
    let text = format!("The sub-agent {agent} was denied {calls}. What it says:\n{said}");
    Output::new(ToolStatus::Denied, text)
}

fn answer(agent: &Name, outcome: &Outcome, steps: u32) -> Output {
    let Outcome { reason, output, error } = outcome;
    let said = output.as_deref().map(str::trim).filter(|said| !said.is_empty());
    let status = match reason.status() {
        Status::Success => return Output::ok(said.unwrap_or("It had nothing to say.")),
        // What it says is worth reading, and is not all.
        Status::Partial if said.is_some() => ToolStatus::Ok,
        Status::Partial | Status::Failed => ToolStatus::Failed,
    };
    let why = error.as_deref().map(|error| format!(": {error}"));
    let text = format!(
        "The sub-agent {agent} stopped before it was done, after {} ({}{}).{}",
        count(steps, "step", "steps"),
        reason.name(),
        why.unwrap_or_default(),
        said.map(|said| format!(" What it says:\n{said}")).unwrap_or_default()
    );
    Output::new(status, text)
}
