//! The result of a sub-agent's work for the dispatching agent.

use crate::app::error::AppError;
use crate::app::run::FinishedRun;
use crate::config::ConfigName;
use crate::machine::{RunOutcome, RunStatus, StopReason};
use crate::model::{FileChange, ToolStatus, pluralize};
use crate::tools::ToolOutput;

/// Returns the answer to the call that sent a sub-agent.
pub(super) fn output_of(
    agent: &ConfigName,
    ended: Result<FinishedRun, AppError>,
    changes: Vec<FileChange>,
) -> ToolOutput {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            let why = format!("The sub-agent {agent} could not begin: {error}.");
            return ToolOutput { changes, ..ToolOutput::failed(why) };
        }
    };
    let run = ended.machine.state.run();
    let output = match ended.outcome() {
        None => ToolOutput::failed(format!("The sub-agent {agent} broke down.")),
        // With an error, it was a hook that blocked the run.
        Some(RunOutcome { reason: StopReason::ChecksFailed, output, error: None })
            if run.denied_calls > 0 =>
        {
            // The user counts denied calls as a failure, so the call that sent the sub-agent counts as one of them.
            let calls = pluralize(run.denied_calls, "tool call", "tool calls");
            let answer = output.as_deref().unwrap_or_default().trim();
            let text = format!("The sub-agent {agent} was denied {calls}. What it says:\n{answer}");
            ToolOutput::new(ToolStatus::Denied, text)
        }
        Some(outcome) => format_answer(agent, outcome, run.steps),
    };
    ToolOutput { changes, ..output }
}

fn format_answer(agent: &ConfigName, outcome: &RunOutcome, steps: u32) -> ToolOutput {
    let RunOutcome { reason, output, error } = outcome;
    let answer = output.as_deref().map(str::trim).filter(|answer| !answer.is_empty());
    let status = match reason.status() {
        RunStatus::Success => return ToolOutput::ok(answer.unwrap_or("It gave no answer.")),
        // What it says is worth reading, and is not all.
        RunStatus::Partial if answer.is_some() => ToolStatus::Ok,
        RunStatus::Partial | RunStatus::Failed => ToolStatus::Failed,
    };
    let why = error.as_deref().map(|error| format!(": {error}"));
    let text = format!(
        "The sub-agent {agent} stopped before it was done, after {} ({}{}).{}",
        pluralize(steps, "step", "steps"),
        reason.name(),
        why.unwrap_or_default(),
        answer.map(|answer| format!(" What it says:\n{answer}")).unwrap_or_default()
    );
    ToolOutput::new(status, text)
}
