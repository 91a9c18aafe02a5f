//! Searching the workspace: which files are looked at, and how what is found is shown.
//!
//! Files are walked as ripgrep walks them: in parallel, without what the project ignores, without following symbolic
//! links. Each file is opened by the handle of the workspace, so that a folder which is swapped meanwhile leads nowhere.

mod found;
mod run;
mod walk;

pub(super) use run::{Search, Text};
pub(super) use walk::{Walk, Walked, names};
