//! The log for people, on standard error.
//!
//! [`HumanLog`] turns public events into lines; the catalogue has the words, [`summary`] says in a few of them what a
//! tool is called with, `blocks` keeps what belongs to one tool call together although several run at a time, and
//! `screen` draws a spinner below it all where there is a terminal. Every byte that comes from a model, a tool or a
//! file name is made harmless first.

mod blocks;
mod log;
mod paint;
mod screen;
pub mod summary;
mod terminal;

pub use log::{HumanLog, Hush, Look};
pub use terminal::{Color, UnknownColor, is_live, is_styled};
