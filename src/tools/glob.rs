//! Globs for file names.

use globset::{GlobBuilder, GlobMatcher};

/// The longest pattern for names of files.
const MAX_GLOB_LENGTH: usize = 1_000;

/// Braces in each other that a pattern for names of files may have.
const MAX_BRACE_DEPTH: usize = 8;

/// Reads a pattern for names of files, in which `*` does not stand for `/`.
///
/// # Errors
///
/// Fails with what is wrong with it. One that is nested without end would end the process.
pub(super) fn compile_glob(pattern: &str) -> Result<GlobMatcher, String> {
    let mut depth = 0_usize;
    for char in pattern.chars() {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_BRACE_DEPTH || pattern.len() > MAX_GLOB_LENGTH {
            return Err("it is too long, or its braces are nested too deeply".to_owned());
        }
    }
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.to_string())
}
