//! Search in the files of the workspace.
//!
//! Files are walked as ripgrep does: in parallel, without ignored files, without following symbolic links. Each file is
//! opened through the handle of the workspace, so that a folder that is replaced meanwhile cannot lead outside.

mod content_search;
mod matches;
mod walk;

pub(super) use content_search::{PatternSyntax, SearchRequest};
pub(super) use walk::{FileWalk, WalkEnd, compile_name_pattern};
