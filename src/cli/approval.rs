//! Approval of changed files in a trusted folder.

use architect::app::ProcessEnv;
use architect::config::{ChangedFile, Config, TRUST_VARIABLE, TrustStore};
use architect::view::sanitize;
use architect::workspace::unified_diff;

use super::error::CliError;
use super::output;

/// Shows the changes since the folder was trusted, and records the user's approval of exactly these.
///
/// # Errors
///
/// Fails if there is no terminal to ask on, or the user does not approve.
pub(super) fn ask(config: &Config, world: &ProcessEnv) -> Result<(), CliError> {
    let names: Vec<String> = config.changed.iter().map(name).collect();
    let what = format!(
        "this folder's own configuration has changed since you trusted it: {}",
        sanitize::for_pipe(&names.join(", "))
    );
    let refused = || {
        CliError::usage(what.clone())
            .hint("look at the changes; then `architect config trust` trusts the current files")
            .hint(format!(
                "`--trust` or {TRUST_VARIABLE}=1 trusts it for one run; {TRUST_VARIABLE}=0 runs without it"
            ))
    };
    let Some(state) = world.folders().state else { return Err(refused()) };
    let changes: String = config.changed.iter().map(diff).collect();
    // The file may contain terminal escape codes.
    let shown = format!("{what}\n\n{}", sanitize::for_pipe(&changes));
    if output::ask(&shown, "Trust this?")? != Some(true) {
        return Err(refused());
    }
    let accepted = TrustStore::new(&state).accept(&config.workspace, &config.changed);
    accepted.map_err(CliError::failed)
}

fn name(file: &ChangedFile) -> String {
    let new = if file.trusted.is_none() { " (new)" } else { "" };
    format!("{}{new}", file.path)
}

fn diff(file: &ChangedFile) -> String {
    let ChangedFile { path, trusted, now } = file;
    unified_diff(path, trusted.as_deref().map(str::as_bytes), Some(now.as_bytes()))
}
