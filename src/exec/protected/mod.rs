//! Protected paths of a workspace: what a command finds mounted over, restored or renamed.
//!
//! The strongest level of confinement mounts over what is there (`covered`). Where nothing can be mounted, the content is
//! restored after each command (`snapshot`). What does not exist yet is renamed if a command creates it (`absent_paths`).

pub(super) mod absent_paths;
#[cfg(target_os = "linux")]
pub(super) mod covered;
pub(super) mod snapshot;
