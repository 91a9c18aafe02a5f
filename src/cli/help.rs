//! Longer texts of the help.

use architect::view::reference_tables;

/// Returns the table of how a run can end: stop reasons with their status, exit codes and meaning.
pub(crate) fn exit_code_table() -> String {
    let table = reference_tables::stop_reasons().to_text();
    format!(
        "{}\n141 is also the exit code of every command whose standard output was closed.",
        table.trim_end()
    )
}
