//! Checks of folders with results.

use std::path::Path;

use architect::app::{ProcessEnv, open_worktrees};
use architect::view::sanitize;

use super::error::CliError;

/// Checks that a folder of results was created by this user: results that come with a repository would count as done.
///
/// # Errors
///
/// Fails if git tracks files in the folder, or if a link in the project leads to it.
pub(crate) fn check_origin(folder: &Path, world: &ProcessEnv) -> Result<(), CliError> {
    let own = world.cwd.join(".architect");
    let links = folder.ancestors().filter(|path| path.starts_with(&own));
    if let Some(link) = links.filter(|path| path.is_symlink()).last() {
        let link = sanitize::path(link);
        return Err(CliError::usage(format!(
            "{link} is a link, and results would be written to where it leads"
        ))
        .hint("--out names another folder"));
    }
    let is_tracked = folder.exists()
        && open_worktrees(world)
            .and_then(|worktrees| worktrees.is_tracked(folder))
            .unwrap_or(false);
    if is_tracked {
        let folder = sanitize::path(folder);
        return Err(CliError::usage(format!(
            "git tracks the results in {folder}, so they came with the repository and can't be trusted"
        ))
        .hint("--out names another folder; `git rm -r --cached` makes them yours"));
    }
    Ok(())
}
