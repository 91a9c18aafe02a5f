//! Plan first: the `plan` agent reads and plans, and the agent of the task carries the plan out.

use std::sync::Arc;

use super::limits::rest;
use crate::app::{AppError, Ended, Order, Place, Setup, Stage};
use crate::machine::Status;
use crate::view::Source;

/// The agent that plans.
const PLANNER: &str = "plan";

/// Plans a task, and then carries the plan out. A plan that is not finished is the end.
///
/// The plan is a session of its own beside the one that carries it out.
///
/// # Errors
///
/// Fails when a run could not begin.
pub fn plan_first(setup: &Setup, order: Order, stage: &Stage) -> Result<Vec<Ended>, AppError> {
    let task = order.task.clone().unwrap_or_default();
    let agent = setup.config.agent(PLANNER)?;
    let planner = setup.acting_as(agent);
    let place = match &order.place {
        Place::Nowhere => Place::Nowhere,
        Place::New(store, _) | Place::Dispatched(store, ..) | Place::Stored(store, _) => {
            Place::New(store.clone(), None)
        }
    };
    let planning = Order {
        task: Some(Arc::clone(&task)),
        place,
        options: order.options.clone(),
        source: Source::Plan,
        exit_on_partial: order.exit_on_partial,
    };
    let planned = planner.run(planning, stage.clone())?;
    let plan = match planned.outcome() {
        Some(outcome) if outcome.reason.status() == Status::Success => outcome.output.clone(),
        _ => return Ok(vec![planned]),
    };
    let builder = setup.configured(rest(&setup.config, [&planned], None));
    let task = format!(
        "{task}\n\n## Plan\n\n{}\n\nCarry this plan out. Where it turns out to be wrong, do what the task asks for, and say so.",
        plan.unwrap_or_default().trim()
    );
    let built = builder.run(Order { task: Some(task.into()), ..order }, stage.clone())?;
    Ok(vec![planned, built])
}
