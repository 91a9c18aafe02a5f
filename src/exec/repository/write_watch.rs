//! Watches what this program itself writes into a workspace: restored, merged or applied files.

use std::path::PathBuf;

use super::RepositoryGuard;
use crate::exec::confine::SandboxLevel;
use crate::exec::confine::policy::SandboxPolicy;
use crate::exec::protected::absent_paths::AbsentPaths;

/// A watch over files that this program writes into a workspace. When dropped, it makes harmless the files written
/// since its start that git or another program would run or obey, as is done after a command. If the process is killed,
/// the next start does this.
///
/// A file may have been harmless in its original place, and not in the new one.
pub struct WriteWatch {
    absent: AbsentPaths,
    is_finished: bool,
    // Dropped last, together with its record.
    guard: RepositoryGuard,
}

impl WriteWatch {
    /// Begins to watch the paths that a policy protects in the workspace.
    pub fn begin(policy: &SandboxPolicy) -> Self {
        let mut policy = policy.clone();
        policy.protected.retain(|path| path.starts_with(&policy.workspace));
        // There is no command that could have put a repository among its temporary files.
        policy.temp = PathBuf::new();
        let guard = RepositoryGuard::new(&policy);
        // Nothing is mounted.
        guard.begin(SandboxLevel::Landlock);
        Self { absent: AbsentPaths::new(guard.policy()), is_finished: false, guard }
    }

    /// Ends the watch. Returns a sentence for each file that was made harmless; the log has these sentences, too.
    pub fn finish(mut self) -> Vec<String> {
        self.end()
    }

    fn end(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Vec::new();
        }
        let mut sentences = self.guard.clean_up(&[]);
        let renamed = self.absent.rename_created().into_iter();
        sentences.extend(renamed.map(|path| {
            format!("{} is protected; what was written there was renamed", path.display())
        }));
        sentences.iter().for_each(|sentence| log::warn!("{sentence}"));
        sentences
    }
}

impl Drop for WriteWatch {
    fn drop(&mut self) {
        self.end();
    }
}
