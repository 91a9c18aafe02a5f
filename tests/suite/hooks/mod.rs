//! Hooks: what they see, what they change, what they stop.

mod cli_hooks;
mod fixture;
mod hook_points;
mod shell_hooks;
mod tool_hooks;
