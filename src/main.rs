//! The `architect` command. It knows the library, its arguments and its terminal; the work is done elsewhere.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
