//! Hooks: what they see, what they change, what they stop.

mod calls;
mod command;
mod commands;
mod points;
mod world;
