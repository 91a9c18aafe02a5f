//! The files that a run changed, each once, with the net change.

use std::sync::Arc;

use super::FileModified;
use crate::model::FileAction::{Created, Deleted, Modified};
use crate::model::{FileAction, FileChange};

/// The changed files, in the order in which they were first changed.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedFiles(Vec<(FileModified, FileChangeState)>);

/// Whether a file still counts as changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileChangeState {
    Changed,
    /// It was created and deleted; nothing is left of it.
    Undone,
}

impl ChangedFiles {
    pub(super) fn add(&mut self, change: &FileChange) {
        let Some((file, state)) = self.0.iter_mut().find(|(file, _)| file.path == change.path)
        else {
            let FileChange { path, action, added, removed } = change;
            let path = Arc::clone(path);
            let file = FileModified { path, action: *action, added: *added, removed: *removed };
            self.0.push((file, FileChangeState::Changed));
            return;
        };
        file.added += change.added;
        file.removed += change.removed;
        (file.action, *state) = match *state {
            FileChangeState::Changed => combine(file.action, change.action),
            FileChangeState::Undone => (change.action, FileChangeState::Changed),
        };
    }

    pub(super) fn changed(&self) -> Vec<FileModified> {
        let changed = self.0.iter().filter(|(_, state)| *state == FileChangeState::Changed);
        changed.map(|(file, _)| file.clone()).collect()
    }
}

/// Returns the net effect of two actions.
fn combine(first: FileAction, second: FileAction) -> (FileAction, FileChangeState) {
    match (first, second) {
        (Created, Deleted) => (Deleted, FileChangeState::Undone),
        (Created, Created | Modified) => (Created, FileChangeState::Changed),
        (Modified | Deleted, Deleted) => (Deleted, FileChangeState::Changed),
        (Modified | Deleted, Created | Modified) => (Modified, FileChangeState::Changed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed_actions(actions: &[FileAction]) -> Vec<FileAction> {
        let mut files = ChangedFiles::default();
        for action in actions {
            files.add(&FileChange { path: "a".into(), action: *action, added: 1, removed: 1 });
        }
        files.changed().iter().map(|file| file.action).collect()
    }

    #[test]
    fn a_file_is_listed_once_with_its_net_change() {
        assert_eq!(changed_actions(&[Created, Modified]), [Created]);
        assert_eq!(changed_actions(&[Modified, Modified]), [Modified]);
        assert_eq!(changed_actions(&[Modified, Deleted]), [Deleted]);
        assert_eq!(changed_actions(&[Deleted, Created]), [Modified]);
        assert_eq!(changed_actions(&[Created, Deleted]), []);
        assert_eq!(changed_actions(&[Created, Deleted, Created]), [Created]);
    }
}
