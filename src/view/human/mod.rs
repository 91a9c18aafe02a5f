//! The log for people, on standard error.
//!
//! [`HumanLog`] turns public events into lines; the catalogue has the words, [`summary`] says in a few of them what a
//! tool is called with, `blocks` keeps what belongs to one tool call together although several run at a time, and
//! `screen` draws a spinner below it all where there is a terminal. Every byte that comes from a model, a tool or a
//! file name is made harmless first.

mod call_blocks;
pub mod call_summary;
mod color;
mod human_log;
mod painter;
mod terminal_screen;

pub use color::{ColorChoice, can_redraw, should_use_color};
pub use human_log::{HumanLog, LogStyle, PauseDrawing};
