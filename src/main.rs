//! The `architect` command. It knows the library, its arguments and its terminal; the work is done elsewhere.

mod cli;

use std::process::ExitCode;

use architect::exec::helper;

fn main() -> ExitCode {
    // Before anything else: as a supervisor of commands this is another program.
    if let Some(code) = architect::supervisor_main() {
        return code;
    }
    // Where it cannot be had, the confinement of commands is what keeps them away.
    let _ = helper::forbid_inspection();
    cli::main()
}
