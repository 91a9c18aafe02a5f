//! The tools, on real files and with real processes.

mod commands;
mod confinement;
mod files;
mod registry;
pub(crate) mod world;
