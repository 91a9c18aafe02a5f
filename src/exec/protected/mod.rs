//! Protected paths of a workspace, and how changes of them are prevented or undone.
//!
//! The strongest level of confinement mounts over existing paths (`covered`). If mounts are not available, the content
//! is restored after each command (`snapshot`). If a command creates a missing path, it is renamed (`absent_paths`).

pub(super) mod absent_paths;
#[cfg(target_os = "linux")]
pub(super) mod covered;
pub(super) mod snapshot;
