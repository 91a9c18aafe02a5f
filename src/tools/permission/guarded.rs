//! The guarded files that there are, for the confinement of commands.

use std::path::PathBuf;

use ignore::WalkBuilder;

use super::guardrails::Guardrails;
use crate::workspace::Root;

/// The guarded files that there are when a run begins, by their absolute paths.
///
/// What a command names can be judged by its text; what its programs open by themselves cannot. With these files in the
/// policy of the confinement, that is stopped, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedFiles {
    /// Files and folders that are never changed.
    pub protected: Vec<PathBuf>,
    /// Files and folders that are neither read nor changed.
    pub sensitive: Vec<PathBuf>,
}

/// Files and folders that are returned; each costs something at the start of every command.
const MOST: usize = 500;

impl Guardrails {
    /// Returns the guarded files of a workspace, ignored ones included. Walks through all of it, unless nothing is guarded.
    pub fn files(&self, root: &Root) -> GuardedFiles {
        let mut files = GuardedFiles::default();
        if self.protected.is_empty() && self.sensitive.is_empty() {
            return files;
        }
        let mut walk = WalkBuilder::new(root.path());
        walk.standard_filters(false)
            .follow_links(false)
            .filter_entry(|entry| entry.file_name() != ".git");
        let mut within: Option<PathBuf> = None;
        for entry in walk.build().flatten() {
            let path = entry.path();
            // What lies in a guarded folder is guarded with it.
            if within.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            let Some(name) = path.strip_prefix(root.path()).ok().and_then(|path| path.to_str())
            else {
                continue;
            };
            let list = match () {
                () if self.sensitive.find(name).is_some() => &mut files.sensitive,
                () if self.protected.find(name).is_some() => &mut files.protected,
                () => continue,
            };
            if list.len() < MOST {
                list.push(path.to_owned());
            }
            within = Some(path.to_owned());
        }
        files
    }
}
