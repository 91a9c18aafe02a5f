//! Coordination of a batch's processes: leases and the budget.

mod budget;
mod explorer;
mod log;
mod processes;
mod settings;
mod simulation;
