//! The tools, on real files and with real processes.

mod caches;
#[cfg(target_os = "linux")]
pub(crate) mod cage;
mod commands;
#[cfg(target_os = "linux")]
mod confinement;
mod edits;
mod engine;
mod files;
mod git;
mod guardrails;
mod lost;
mod odd;
mod patches;
mod permissions;
#[cfg(target_os = "linux")]
mod protected;
mod races;
mod registry;
mod scarce;
mod search;
pub(crate) mod world;
