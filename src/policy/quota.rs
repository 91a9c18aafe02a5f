//! The used quota of a run.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::guardrails::GuardrailLimits;
use crate::port::lock;
use crate::types::{FileChange, FilePath, pluralize};

/// The quota that a run has used so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The files that tools have changed.
    pub files: BTreeSet<FilePath>,
    /// The number of lines that tools have added and removed.
    pub lines: u64,
    /// The number of commands started.
    pub commands: u64,
}

/// Counts the changes and commands of a run, and rejects calls beyond its limits.
#[derive(Debug, Default)]
pub struct Quota {
    limits: GuardrailLimits,
    used: Mutex<QuotaUsage>,
}

/// The quota that a call will use.
#[derive(Clone, Copy, Debug)]
pub struct CallUsage<'a> {
    /// The files to be changed.
    pub changes: &'a [FileChange],
    /// The number of commands to be started.
    pub commands: u64,
}

impl Quota {
    /// Returns a quota that is partly used.
    pub fn new(limits: GuardrailLimits, used: QuotaUsage) -> Self {
        Self { limits, used: Mutex::new(used) }
    }

    /// Returns the reason why a call would exceed a limit; `None` if it would not.
    pub fn exceeded_reason(&self, call: CallUsage<'_>) -> Option<String> {
        self.check(&lock(&self.used), call)
    }

    /// Counts a call.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the call would exceed a limit; the call is then not counted.
    pub fn consume(&self, call: CallUsage<'_>) -> Result<(), String> {
        let mut used = lock(&self.used);
        if let Some(why) = self.check(&used, call) {
            return Err(why);
        }
        used.files.extend(call.changes.iter().map(|change| change.path.clone()));
        used.lines += count_lines(call.changes);
        used.commands += call.commands;
        Ok(())
    }

    fn check(&self, used: &QuotaUsage, call: CallUsage<'_>) -> Option<String> {
        let new = call.changes.iter().filter(|change| !used.files.contains(&change.path)).count();
        let more = |done: u64, new: u64, limit: Option<u64>| {
            limit.filter(|limit| done + new > *limit && new > 0)
        };
        let files = used.files.len() as u64;
        if let Some(limit) = more(files, new as u64, self.limits.files) {
            let which = "guardrails.max_files_modified";
            let done = pluralize(files, "file has", "files have");
            return Some(format!(
                "{which} is {limit}: {done} been changed already, and this call would change {new} more"
            ));
        }
        if let Some(limit) = more(used.lines, count_lines(call.changes), self.limits.lines) {
            let which = "guardrails.max_lines_changed";
            let done = pluralize(used.lines, "line has", "lines have");
            let new = count_lines(call.changes);
            return Some(format!(
                "{which} is {limit}: {done} been changed already, and this call would change {new}"
            ));
        }
        let limit = more(used.commands, call.commands, self.limits.commands)?;
        let which = "guardrails.max_commands_executed";
        Some(format!("{which} is {limit}, and as many commands have been run already"))
    }
}

fn count_lines(changes: &[FileChange]) -> u64 {
    changes.iter().map(|change| change.added + change.removed).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileAction;

    #[test]
    fn one_file_is_one_file() {
        let change = |path: &str| FileChange {
            path: path.into(),
            action: FileAction::Created,
            added: 1,
            removed: 0,
        };
        let limits = GuardrailLimits { files: Some(1), ..GuardrailLimits::default() };
        let quota = Quota::new(limits, QuotaUsage::default());
        let consume = |path| quota.consume(CallUsage { changes: &[change(path)], commands: 0 });
        assert_eq!(consume("a"), Ok(()));
        assert_eq!(
            consume("b").unwrap_err(),
            "guardrails.max_files_modified is 1: 1 file has been changed already, and this call would change 1 more"
        );
    }
}
