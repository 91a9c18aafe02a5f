//! The used quota of a run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::guardrails::GuardrailLimits;
use crate::model::FileChange;

/// The quota that a run has used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The files that it has changed.
    pub files: BTreeSet<Arc<str>>,
    /// Lines that it has added and removed.
    pub lines: u64,
    /// Commands that it has started.
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
    /// The number of commands.
    pub commands: u64,
}

impl Quota {
    /// Returns a quota that is partly used.
    pub fn new(limits: GuardrailLimits, used: QuotaUsage) -> Self {
        Self { limits, used: Mutex::new(used) }
    }

    /// Returns why a call would exceed a limit; `None` if it would not.
    pub fn exceeded_reason(&self, call: CallUsage<'_>) -> Option<String> {
        self.check(&self.lock(), call)
    }

    /// Counts a call.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the call would exceed a limit; it is not counted then.
    pub fn consume(&self, call: CallUsage<'_>) -> Result<(), String> {
        let mut used = self.lock();
        if let Some(why) = self.check(&used, call) {
            return Err(why);
        }
        used.files.extend(call.changes.iter().map(|change| Arc::clone(&change.path)));
        used.lines += count_lines(call.changes);
        used.commands += call.commands;
        Ok(())
    }

    fn check(&self, used: &QuotaUsage, call: CallUsage<'_>) -> Option<String> {
        let GuardrailLimits { files, lines, commands } = self.limits;
        let more = |done: u64, new: u64, limit: Option<u64>| {
            limit.filter(|limit| done + new > *limit && new > 0)
        };
        let new = call.changes.iter().filter(|change| !used.files.contains(&change.path)).count();
        let done = used.files.len() as u64;
        if let Some(limit) = more(done, new as u64, files) {
            return Some(format!(
                "guardrails.max_files_modified is {limit}, and {done} files have been changed already"
            ));
        }
        let (done, new) = (used.lines, count_lines(call.changes));
        if let Some(limit) = more(done, new, lines) {
            return Some(format!(
                "guardrails.max_lines_changed is {limit}; {done} lines have been changed already, and this call changes {new}"
            ));
        }
        let limit = more(used.commands, call.commands, commands)?;
        Some(format!(
            "guardrails.max_commands_executed is {limit}, and as many commands have been run already"
        ))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, QuotaUsage> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count_lines(changes: &[FileChange]) -> u64 {
    changes.iter().map(|change| change.added + change.removed).sum()
}
