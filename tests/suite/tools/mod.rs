//! The tools, on real files and with real processes.

mod commands;
mod confinement;
mod files;
mod guardrails;
mod patches;
mod permissions;
mod races;
mod registry;
mod search;
pub(crate) mod world;
