//! Hooks: what they see, what they change, what they stop.

mod calls;
mod points;
mod world;
