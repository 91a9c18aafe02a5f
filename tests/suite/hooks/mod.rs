//! Hooks: their input, their changes, blocking.

mod cli_hooks;
mod fixture;
mod hook_points;
mod shell_hooks;
mod tool_hooks;
