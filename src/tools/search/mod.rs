//! Search in the files of the workspace.
//!
//! Files are walked as in ripgrep: in parallel, without ignored files, and without following symbolic links. Each file
//! is opened through the handle of the workspace, so that a folder that is replaced meanwhile cannot lead outside.

mod content_search;
mod matches;
mod walk;

pub(super) use content_search::{PatternSyntax, SearchRequest};
pub(super) use walk::{FileWalk, WalkEnd, compile_name_pattern};
