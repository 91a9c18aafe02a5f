//! What a command line does, as far as that can be told from its text.
//!
//! There are two ways to look at it. To say *no*, everything is gathered that may run ([`Line`]), rather too much than
//! too little. To say *yes*, the line has to be understood as a whole, and each of its parts has to be known.

mod forbidden;
mod git;
mod known;
mod line;
mod options;
mod program;
mod reads;
mod unread;

pub(super) use forbidden::forbidden;
pub(super) use git::split as git_folders;
pub(super) use line::{Line, Program, below};
pub(super) use program::{Inner, inner, name, runs_scripts};
pub(super) use reads::{is_harmless, is_own, is_plain_setting, only_reads};
pub(super) use unread::programs as guessed;
