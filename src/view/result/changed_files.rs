//! The files changed by a run, each listed once with its net change.

use crate::types::FileAction::{Created, Deleted, Modified};
use crate::types::FileChange;

/// The changed files, in the order of their first changes. The flag is `false` for a file that was created and then
/// deleted, which is no net change.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedFiles(Vec<(FileChange, bool)>);

impl ChangedFiles {
    pub(super) fn add(&mut self, change: &FileChange) {
        let known = self.0.iter_mut().find(|(file, _)| file.path == change.path);
        let Some((file, is_changed)) = known else { return self.0.push((change.clone(), true)) };
        file.added += change.added;
        file.removed += change.removed;
        (file.action, *is_changed) = match (file.action, change.action) {
            (_, action) if !*is_changed => (action, true),
            (Created, Deleted) => (Deleted, false),
            (Created, Created | Modified) => (Created, true),
            (Modified | Deleted, Deleted) => (Deleted, true),
            (Modified | Deleted, Created | Modified) => (Modified, true),
        };
    }

    pub(super) fn changed(&self) -> Vec<FileChange> {
        self.0.iter().filter(|(_, is_changed)| *is_changed).map(|(file, _)| file.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileAction;

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
