//! Parsing and application of patches.
//!
//! [`ParsedPatch`] is a unified diff, as `git diff` writes it, or a patch in the format that begins with `*** Begin Patch`.
//! [`apply_hunks`] computes the new content of a file: exactly if possible, otherwise with offsets and fuzz as `patch`
//! does.

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
