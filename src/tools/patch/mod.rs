//! Patches: what a unified diff says, and what it makes of a file.
//!
//! [`sections`] takes a patch apart, file by file; it knows what `git diff` writes, and the
//! format that begins with `*** Begin Patch`. [`applied`] makes the new content of
//! one file: exactly where that can be, as `patch` does with offsets and fuzz where it can't.

mod apply;
mod begin_patch;
mod file_name;
mod file_patch;
mod hunk;
mod locate;
mod name_prefix;

pub(super) use apply::{Edge, PatchError, apply_hunks, misplaced};
pub(super) use file_patch::{FileOperation, FilePatch, ParsedPatch};
pub(super) use hunk::Hunk;

#[cfg(test)]
mod tests;
