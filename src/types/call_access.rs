//! The files that a tool call touches, to order calls that conflict.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The files that a tool call touches. Two calls that conflict run in call order.
///
/// Paths are relative to the workspace, with `/` between their parts; the empty path is the whole workspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallAccess {
    /// Reads below these paths.
    Read(Arc<[Arc<str>]>),
    /// Changes these files.
    Write(Arc<[Arc<str>]>),
    /// May touch anything: a command, a tool of a server, a call that needs confirmation.
    Exclusive,
}

impl CallAccess {
    /// Returns the access of a call that reads below `path`.
    pub fn read(path: &str) -> Self {
        Self::Read([path.into()].into())
    }

    /// Returns the access of a call that changes the file `path`.
    pub fn write(path: &str) -> Self {
        Self::Write([path.into()].into())
    }

    /// Returns whether two calls must not run at the same time.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (_, Self::Exclusive) => true,
            (Self::Read(_), Self::Read(_)) => false,
            (Self::Read(a) | Self::Write(a), Self::Read(b) | Self::Write(b)) => {
                a.iter().any(|a| b.iter().any(|b| paths_overlap(a, b)))
            }
        }
    }
}

/// Returns whether one path equals the other one or is below it.
fn paths_overlap(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short)
        .is_some_and(|rest| short.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_run_together_and_commands_run_alone() {
        assert!(!CallAccess::read("a").conflicts_with(&CallAccess::read("a")));
        assert!(CallAccess::Exclusive.conflicts_with(&CallAccess::read("a")));
        assert!(CallAccess::Exclusive.conflicts_with(&CallAccess::Exclusive));
    }

    #[test]
    fn a_change_conflicts_with_its_file_and_the_folders_above_it() {
        let change = CallAccess::write("src/a.rs");
        assert!(change.conflicts_with(&CallAccess::write("src/a.rs")));
        assert!(change.conflicts_with(&CallAccess::read("src")));
        assert!(CallAccess::read("").conflicts_with(&change));
        assert!(!change.conflicts_with(&CallAccess::write("src/b.rs")));
        assert!(!change.conflicts_with(&CallAccess::read("src/a")));
    }
}
