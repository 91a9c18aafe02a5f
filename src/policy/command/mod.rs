//! What a command line does, as far as its text shows.
//!
//! There are two ways to look at it. To say *no*, everything is gathered that may run ([`Line`]), rather too much than
//! too little. To say *yes*, the line has to be understood as a whole, and each of its parts has to be known.

mod command_line;
mod forbidden;
mod git;
mod known_variables;
mod options;
mod program;
mod read_only;
mod unparsed;

pub(super) use command_line::{CommandLine, Program, rebase_folder};
pub(super) use forbidden::forbidden_reason;
pub(super) use git::split_global_options as git_folders;
pub(super) use program::{NestedExecution, nested_execution, program_name, runs_scripts};
pub(super) use read_only::{
    is_harmless_shell_setting, is_harmless_variable, is_script_variable, only_reads,
};
pub(super) use unparsed::possible_programs as guessed;
