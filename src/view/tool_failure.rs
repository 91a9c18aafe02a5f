//! One-line errors of failed tool calls.

use super::sanitize;
use crate::policy::CallKind;
use crate::tools::describe;

/// Prefixes of the last line of a failed command.
const COMMAND_ENDINGS: [&str; 5] =
    ["[exit code ", "[ended by signal ", "[timed out", "[interrupted", "[could not be ended"];

/// Returns a one-line error for a tool call: the first line of its output. For a command, it is the exit status and the
/// last line of the error output, or of the output if the error output is empty.
pub(super) fn failure_line(tool: &str, answer: &str, longest: usize) -> String {
    let is_command = describe(tool).is_some_and(|tool| tool.kind() == CallKind::Command);
    let of_command = is_command.then(|| command_failure(answer, longest)).flatten();
    of_command.unwrap_or_else(|| sanitize::headline(answer, longest))
}

fn command_failure(answer: &str, longest: usize) -> Option<String> {
    let lines: Vec<&str> = answer.lines().collect();
    let is_end = |line: &&str| COMMAND_ENDINGS.iter().any(|begin| line.starts_with(begin));
    let at = lines.iter().rposition(is_end)?;
    let end = lines[at].trim_start_matches('[').trim_end();
    let end = end.strip_suffix(']').unwrap_or(end);
    // If the error output is empty, its heading is the last line.
    let last = lines[..at].iter().rev().map(|line| line.trim());
    let last = last.filter(|line| !line.is_empty()).find(|line| *line != "[stderr]");
    let last = last.map(|last| format!(": {last}")).unwrap_or_default();
    Some(sanitize::headline(&format!("{end}{last}"), longest))
}

#[cfg(test)]
mod tests {
    use super::failure_line;

    #[test]
    fn a_command_failure_has_the_exit_code_and_the_last_error_line() {
        let of = |answer| failure_line("run_command", answer, 80);
        assert_eq!(of("one\n[stderr]\nwarn\nerror: no\n\n[exit code 2]"), "exit code 2: error: no");
        assert_eq!(of("1\n2\n[exit code 1]"), "exit code 1: 2");
        assert_eq!(of("[exit code 1]"), "exit code 1");
        assert_eq!(of("out\n[stderr]\n[exit code 1]"), "exit code 1: out");
        assert_eq!(
            of("x\n[timed out after 3 s and was ended; a note]\nHook a: ✓"),
            "timed out after 3 s and was ended; a note: x"
        );
        assert_eq!(of("The command was not run: why."), "The command was not run: why.");
        assert_eq!(failure_line("grep", "first\n[exit code 2]", 80), "first");
    }
}
