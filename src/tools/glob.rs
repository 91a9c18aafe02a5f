//! Globs for file names.

use globset::{GlobBuilder, GlobMatcher};

/// The maximum length of a pattern, in bytes.
const MAX_GLOB_LENGTH: usize = 1_000;

/// The maximum nesting of braces in a pattern.
const MAX_BRACE_DEPTH: usize = 8;

/// Compiles a pattern for file names, in which `*` does not match `/`.
///
/// # Errors
///
/// Fails if the pattern is invalid, too long, or nested too deeply, which would overflow the stack.
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
