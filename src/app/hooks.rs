//! The user's hooks, as the settings have them.

use std::sync::Arc;

use super::sandbox::Sandbox;
use crate::config::{self, Config, HookSettings, PathPattern, Problem};
use crate::hooks::{EditHook, Hooks, OnFailure, Place, SessionFacts, Shell, ShellHook};
use crate::port::HookPoint;

/// Returns the hooks of a run, in order.
///
/// # Errors
///
/// Fails when the pattern of one is none.
pub(super) fn of(
    config: &Config,
    sandbox: &Sandbox,
    session: SessionFacts,
) -> Result<Hooks, Problem> {
    let session = Arc::new(session);
    let shell: Arc<dyn Shell> = Arc::new(sandbox.user.clone());
    let mut hooks = Hooks::new();
    for point in HookPoint::ALL {
        for hook in config.settings.hooks.at(point) {
            let place = place(point, hook).map_err(|error| {
                let key = format!("hooks.{}.{}.file_patterns", point.name(), hook.name);
                config.problem(&key, error.to_string())
            })?;
            let (session, shell) = (Arc::clone(&session), Arc::clone(&shell));
            let command = ShellHook::new(&*hook.command, hook.timeout.into(), session, shell);
            hooks = match point {
                HookPoint::PostEdit => hooks.with(place, EditHook::new(command)),
                _ => hooks.with(place, command),
            };
        }
    }
    Ok(hooks)
}

fn place(point: HookPoint, hook: &HookSettings) -> Result<Place, globset::Error> {
    let place = Place {
        tools: hook.matcher.clone(),
        on_failure: match hook.on_failure {
            config::OnFailure::Ignore => OnFailure::Ignore,
            config::OnFailure::Block => OnFailure::Block,
        },
        ..Place::at(point, hook.name.as_str())
    };
    place.for_files(hook.file_patterns.iter().map(PathPattern::as_str))
}
