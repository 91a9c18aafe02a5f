//! Static analysis of command lines.
//!
//! There are two analyses. A denial considers everything that may run ([`CommandLine`]), in doubt too much rather than
//! too little. A permission requires that the whole line is understood, and that each of its parts is known.

mod command_line;
mod forbidden;
mod git;
mod known_variables;
mod options;
mod program;
mod read_only;
mod unparsed;

pub(super) use command_line::{CommandLine, rebase_folder};
pub(super) use forbidden::forbidden_reason;
pub(super) use git::split_global_options as git_folders;
pub(super) use options::is_in;
pub(super) use program::{NestedExecution, nested_execution, runs_scripts};
pub(super) use read_only::{
    is_harmless_shell_setting, is_harmless_variable, is_script_variable, only_reads,
};
pub(super) use unparsed::possible_programs as guessed;
