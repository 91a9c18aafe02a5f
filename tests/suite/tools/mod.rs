//! The tools, on real files and with real processes.

mod commands;
mod confinement;
mod engine;
mod files;
mod guardrails;
mod odd;
mod patches;
mod permissions;
mod races;
mod registry;
mod search;
pub(crate) mod world;
