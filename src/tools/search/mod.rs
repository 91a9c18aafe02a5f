//! Searching the workspace: which files are looked at, and how what is found is shown.
//!
//! Files are walked as ripgrep walks them: in parallel, without what the project ignores, without following symbolic
//! links. Each file is opened by the handle of the workspace, so that a folder which is swapped meanwhile leads nowhere.

mod content_search;
mod matches;
mod walk;

pub(super) use content_search::{ContentSearch, PatternSyntax};
pub(super) use walk::{FileWalk, WalkEnd, compile_name_pattern};
