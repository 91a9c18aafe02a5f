//! The tools, on real files and with real processes.

mod background;
mod caches;
mod commands;
#[cfg(target_os = "linux")]
pub(crate) mod confined_workspace;
#[cfg(target_os = "linux")]
mod confinement;
mod edits;
mod files;
pub(crate) mod fixture;
mod git;
mod guardrails;
mod lost_supervisor;
mod patches;
mod permissions;
mod process_end;
#[cfg(target_os = "linux")]
mod protected;
mod races;
mod registry;
mod scarce_resources;
mod search;
mod unusual_workspaces;
