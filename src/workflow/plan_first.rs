//! Plan first: the `plan` agent reads and plans, and the agent of the task carries the plan out.

use std::sync::Arc;

use super::remaining_limits::remaining_config;
use crate::app::{AppError, FinishedRun, RunIo, RunRequest, RunSetup, SessionTarget};
use crate::machine::RunStatus;
use crate::view::CostSource;

/// The agent that plans.
const PLANNER: &str = "plan";

/// Plans a task, and then carries the plan out. A plan that is not finished is the end.
///
/// The plan is a session of its own beside the one that carries it out.
///
/// # Errors
///
/// Fails when a run could not begin.
pub fn plan_first(
    setup: &RunSetup,
    request: RunRequest,
    io: &RunIo,
) -> Result<Vec<FinishedRun>, AppError> {
    let task = request.task.clone().unwrap_or_default();
    let agent = setup.config.agent(PLANNER)?;
    let planner = setup.with_agent(agent);
    let target = match &request.target {
        SessionTarget::Ephemeral => SessionTarget::Ephemeral,
        SessionTarget::New(store, _)
        | SessionTarget::Child(store, ..)
        | SessionTarget::Stored(store, _) => SessionTarget::New(store.clone(), None),
    };
    let planning = RunRequest {
        task: Some(Arc::clone(&task)),
        target,
        options: request.options.clone(),
        source: CostSource::Plan,
        exit_on_partial: request.exit_on_partial,
    };
    let planned = planner.run(planning, io.clone())?;
    let plan = match planned.outcome() {
        Some(outcome) if outcome.reason.status() == RunStatus::Success => outcome.output.clone(),
        _ => return Ok(vec![planned]),
    };
    let builder = setup.with_config(remaining_config(&setup.config, [&planned], None));
    let task = format!(
        "{task}\n\n## Plan\n\n{}\n\nCarry this plan out. Where it turns out to be wrong, do what the task asks for, and say so.",
        plan.unwrap_or_default().trim()
    );
    let built = builder.run(RunRequest { task: Some(task.into()), ..request }, io.clone())?;
    Ok(vec![planned, built])
}
