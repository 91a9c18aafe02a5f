//! Longer texts of the help.

use std::collections::BTreeMap;

use architect::machine::StopReason;

/// Returns the table of stop reasons with their status and exit codes.
pub(crate) fn exit_codes() -> String {
    let mut rows: Vec<(&str, &str, Vec<String>)> = Vec::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in StopReason::ALL {
        let row = *seen.entry(reason.name()).or_insert_with(|| {
            rows.push((reason.name(), reason.status().name(), Vec::new()));
            rows.len() - 1
        });
        let code = reason.exit_code().to_string();
        if !rows[row].2.contains(&code) {
            rows[row].2.push(code);
        }
    }
    let mut text = "Stop reason          Status   Exit code\n".to_owned();
    for (name, status, codes) in rows {
        text.push_str(&format!("{name:<20} {status:<8} {}\n", codes.join(", ")));
    }
    text.push_str(
        "                              3          usage or configuration, before any model call\n\
         \nExit codes of llm_error: 4 for authentication, 5 when the model timed out, 1 otherwise. Of user_interrupt: 130 \
         for SIGINT, 143 for SIGTERM,\n129 for SIGHUP, 141 when standard output was closed.",
    );
    text
}
