//! Plan first: the `plan` agent writes a plan, and the agent of the task implements it.

use std::slice;
use std::sync::Arc;

use super::remaining_limits::remaining_config;
use crate::app::{AppError, FinishedRun, RunIo, RunRequest, RunSetup, SessionTarget};
use crate::machine::RunStatus;
use crate::view::CostSource;

/// Name of the planning agent.
const PLANNER: &str = "plan";

/// Plans a task, and then implements the plan. Ends after the first run if that does not succeed.
///
/// The plan has a separate session.
///
/// # Errors
///
/// Fails if a run can't be started.
pub fn plan_first(
    setup: &RunSetup,
    request: RunRequest,
    io: &RunIo,
) -> Result<Vec<FinishedRun>, AppError> {
    let task = request.task.clone().unwrap_or_default();
    let agent = setup.config.agent(PLANNER)?;
    let planner = setup.with_agent(agent);
    let store = request.target.store().cloned();
    let planning = RunRequest {
        options: request.options.clone(),
        images: request.images.clone(),
        exit_on_partial: request.exit_on_partial,
        ..RunRequest::new(Arc::clone(&task), SessionTarget::new(store), CostSource::Plan)
    };
    let planned = planner.run(planning, io.clone())?;
    let plan = match planned.outcome() {
        Some(outcome) if outcome.reason.status() == RunStatus::Success => outcome.output.clone(),
        _ => return Ok(vec![planned]),
    };
    let builder =
        setup.with_config(remaining_config(&setup.config, slice::from_ref(&planned), None));
    let task = format!(
        "{task}\n\n## Plan\n\n{}\n\nCarry this plan out. Where it turns out to be wrong, do what the task asks for, and say so.",
        plan.unwrap_or_default().trim()
    );
    let built = builder.run(RunRequest { task: Some(task.into()), ..request }, io.clone())?;
    Ok(vec![planned, built])
}
