//! The tools, on real files and with real processes.

mod commands;
mod confinement;
mod files;
mod guardrails;
mod patches;
mod permissions;
mod registry;
mod world;
