//! Whether the lists of patterns in a folder may be read.
//!
//! The walk opens `.gitignore` and its like wherever they are. A workspace that somebody else made may have a pipe
//! there, for which one would wait for ever, or a link to a device that has no end.

use std::path::Path;

/// The lists that a walk reads in each folder.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The largest list that is read, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Returns whether each list in a folder is a regular file of a sensible size, or missing.
pub(super) fn has_readable_ignore_files(folder: &Path) -> bool {
    IGNORE_FILES.iter().all(|list| match std::fs::metadata(folder.join(list)) {
        Ok(meta) => meta.is_file() && meta.len() <= MAX_SIZE || meta.is_dir(),
        Err(_) => true,
    })
}
