//! The files that a run changed, each once, whatever was done to it on the way.

use std::sync::Arc;

use super::FileModified;
use crate::model::FileAction::{Created, Deleted, Modified};
use crate::model::{FileAction, FileChange};

/// The changed files, in the order in which they were first changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(Vec<(FileModified, Fate)>);

/// Whether a file that is told of still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Told,
    /// It was created and deleted; nothing is left of it.
    Gone,
}

impl Files {
    pub(super) fn add(&mut self, change: &FileChange) {
        let Some((file, fate)) = self.0.iter_mut().find(|(file, _)| file.path == change.path)
        else {
            let FileChange { path, action, added, removed } = change;
            let path = Arc::clone(path);
            let file = FileModified { path, action: *action, added: *added, removed: *removed };
            self.0.push((file, Fate::Told));
            return;
        };
        file.added += change.added;
        file.removed += change.removed;
        (file.action, *fate) = match *fate {
            Fate::Told => after(file.action, change.action),
            Fate::Gone => (change.action, Fate::Told),
        };
    }

    pub(super) fn told(&self) -> Vec<FileModified> {
        let told = self.0.iter().filter(|(_, fate)| *fate == Fate::Told);
        told.map(|(file, _)| file.clone()).collect()
    }
}

/// Returns what two things that were done to a file amount to.
fn after(first: FileAction, second: FileAction) -> (FileAction, Fate) {
    match (first, second) {
        (Created, Deleted) => (Deleted, Fate::Gone),
        (Created, Created | Modified) => (Created, Fate::Told),
        (Modified | Deleted, Deleted) => (Deleted, Fate::Told),
        (Modified | Deleted, Created | Modified) => (Modified, Fate::Told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(actions: &[FileAction]) -> Vec<FileAction> {
        let mut files = Files::default();
        for action in actions {
            files.add(&FileChange { path: "a".into(), action: *action, added: 1, removed: 1 });
        }
        files.told().iter().map(|file| file.action).collect()
    }

    #[test]
    fn a_file_is_told_of_once_and_by_what_is_left_of_it() {
        assert_eq!(told(&[Created, Modified]), [Created]);
        assert_eq!(told(&[Modified, Modified]), [Modified]);
        assert_eq!(told(&[Modified, Deleted]), [Deleted]);
        assert_eq!(told(&[Deleted, Created]), [Modified]);
        assert_eq!(told(&[Created, Deleted]), []);
        assert_eq!(told(&[Created, Deleted, Created]), [Created]);
    }
}
