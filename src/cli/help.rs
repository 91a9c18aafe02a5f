//! Longer texts of the help.

use architect::view::tables;

/// Returns the table of how a run can end: stop reasons with their status, exit codes and meaning.
pub(crate) fn exit_codes() -> String {
    let table = tables::stop_reasons().text();
    format!(
        "{}\n141 is also the exit code of every command whose standard output was closed.",
        table.trim_end()
    )
}
