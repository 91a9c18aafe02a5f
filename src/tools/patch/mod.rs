//! Patches: what a unified diff says, and what it makes of a file.
//!
//! [`sections`] takes a patch apart, file by file; it knows what `git diff` writes, and the
//! format that begins with `*** Begin Patch`. [`applied`] makes the new content of
//! one file: exactly where that can be, as `patch` does with offsets and fuzz where it can't.

mod apply;
mod begin;
mod context;
mod hunk;
mod name;
mod prefix;
mod section;

pub(super) use apply::{Edge, NotApplied, applied, misplaced};
pub(super) use hunk::Hunk;
pub(super) use section::{Section, What, sections};

#[cfg(test)]
mod tests;
