//! Parses and applies patches.
//!
//! [`ParsedPatch`] is a unified diff, as written by `git diff`, or a patch in the format of `*** Begin Patch`.
//! [`apply_hunks`] computes the new content of a file: exactly if possible, otherwise with offsets and fuzz like
//! `patch`.

mod apply;
mod begin_patch;
mod file_name;
mod file_patch;
mod hunk;
mod locate;
mod name_prefix;

pub(super) use apply::{Edge, apply_hunks, misplaced};
pub(super) use file_patch::{FileOperation, FilePatch};
pub(super) use hunk::{Hunk, PatchError};

use file_patch::UnresolvedFilePatch;

/// A parsed patch, with file names as in its text.
pub(super) enum ParsedPatch {
    /// The names are paths.
    Exact(Vec<FilePatch>),
    /// The names may have prefixes.
    Prefixed(Vec<UnresolvedFilePatch>),
}

impl ParsedPatch {
    /// Parses a patch.
    ///
    /// # Errors
    ///
    /// Fails with the error and its position.
    pub(super) fn parse(patch: &str) -> Result<Self, String> {
        Ok(match begin_patch::is_begin_patch(patch) {
            true => Self::Exact(begin_patch::parse(patch)?),
            false => Self::Prefixed(file_patch::parse_unified(patch)?),
        })
    }

    /// Returns the patch of each file. `exists` returns whether a file exists, by which prefixes of names are
    /// recognized.
    ///
    /// # Errors
    ///
    /// Fails if a name is ambiguous.
    pub(super) fn resolve(&self, exists: &dyn Fn(&str) -> bool) -> Result<Vec<FilePatch>, String> {
        match self {
            Self::Exact(patches) => Ok(patches.clone()),
            Self::Prefixed(patches) => name_prefix::resolve_names(patches.clone(), exists),
        }
    }
}

#[cfg(test)]
mod tests;
