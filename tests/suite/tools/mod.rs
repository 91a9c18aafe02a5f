//! The tools, on real files and with real processes.

mod cage;
mod commands;
mod confinement;
mod engine;
mod files;
mod guardrails;
mod odd;
mod patches;
mod permissions;
mod protected;
mod races;
mod registry;
mod scarce;
mod search;
pub(crate) mod world;
