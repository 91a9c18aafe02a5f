//! Hooks: what they see, what they change, what they stop.

mod calls;
mod commands;
mod points;
mod world;
