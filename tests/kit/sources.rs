//! The files of this project, which some tests read.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files of Rust code below a folder, by name.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// Returns the files below a folder that have one of these extensions, by name.
pub(crate) fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if path.extension().is_some_and(|own| extensions.iter().any(|end| own == *end)) {
            found.push(path);
        }
    }
    found.sort();
    found
}
