//! Findings about a command line, for a user who decides about it: the programs that it runs, and the files that it
//! writes.

use super::command_file_access::may_write;
use super::shell::{RedirectionKind, ShellCommand};
use super::target::CommandTarget;

/// Returns the programs that a command line was found to run and the files that it was found to write, in short
/// sentences.
pub fn command_findings(command: &CommandTarget) -> Vec<String> {
    let line = command.line();
    let names = |programs: &mut dyn Iterator<Item = &ShellCommand>| {
        unique(programs.filter_map(|program| program.name().map(str::to_owned)))
    };
    let mut findings = Vec::new();
    let runs = names(&mut line.programs.iter());
    if runs.len() > 1 {
        findings.push(format!("it runs {}", runs.join(", ")));
    }
    let redirections = line.programs.iter().flat_map(|program| &program.redirections);
    let written = redirections.filter(|to| to.kind == RedirectionKind::Write);
    let written = unique(written.map(|to| to.target.text.clone()).filter(|to| to != "/dev/null"));
    if !written.is_empty() {
        findings.push(format!("it writes {}", written.join(", ")));
    }
    let is_writer = |program: &&ShellCommand| program.name().is_some() && may_write(program);
    let writers = names(&mut line.programs.iter().filter(is_writer));
    if !writers.is_empty() {
        findings.push(format!("{} can change files", writers.join(", ")));
    }
    if !line.unparsed.is_empty() {
        findings.push("a part of it can't be read before it runs".to_owned());
    }
    findings
}

/// The maximum number of names in a finding.
const MAX_NAMES: usize = 12;

fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    if all.len() > MAX_NAMES {
        all.truncate(MAX_NAMES);
        all.push("…".to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_line_runs_and_writes_is_found() {
        let found = |line: &str| command_findings(&CommandTarget::new(line, "", Vec::new()));
        assert!(found("ls").is_empty());
        assert_eq!(
            found("cargo test > log.txt 2>/dev/null; rm x"),
            ["it runs cargo, rm", "it writes log.txt", "rm can change files"]
        );
    }
}
