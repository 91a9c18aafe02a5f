//! The tools, on real files and with real processes.

mod commands;
mod files;
mod registry;
mod world;
