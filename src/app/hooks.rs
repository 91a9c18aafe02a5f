//! The user's hooks, as the settings have them.

use std::sync::Arc;

use super::sandbox::Sandbox;
use crate::config::{self, Config, HookSandbox, HookSettings, PathPattern, Problem};
use crate::hooks::{EditHook, Hooks, OnFailure, Place, SessionFacts, Shell, ShellHook};
use crate::port::HookPoint;

/// Returns the hooks of a run, in order.
///
/// # Errors
///
/// Fails when the pattern of one is none, or its command can't be given a file's name.
pub(super) fn of(
    config: &Config,
    sandbox: &Sandbox,
    session: SessionFacts,
) -> Result<Hooks, Problem> {
    let session = Arc::new(session);
    let confined: Arc<dyn Shell> = Arc::new(sandbox.checks.clone());
    let free: Arc<dyn Shell> = Arc::new(sandbox.user.clone());
    let mut hooks = Hooks::new();
    for point in HookPoint::ALL {
        for hook in config.settings.hooks.at(point) {
            let key = |part: &str| format!("hooks.{}.{}.{part}", point.name(), hook.name);
            let place = place(point, hook)
                .map_err(|error| config.problem(&key("file_patterns"), error.to_string()))?;
            let shell = match hook.sandbox {
                HookSandbox::On => &confined,
                HookSandbox::Off => &free,
            };
            let (session, shell) = (Arc::clone(&session), Arc::clone(shell));
            let command = ShellHook::new(&*hook.command, hook.timeout.into(), session, shell);
            hooks = match point {
                HookPoint::PostEdit => {
                    let command = EditHook::new(command)
                        .map_err(|error| config.problem(&key("command"), error.to_string()))?;
                    hooks.with(place, command)
                }
                _ => hooks.with(place, command),
            };
        }
    }
    Ok(hooks)
}

/// Returns what is wrong with the commands of hooks.
pub(super) fn mistakes(config: &Config) -> Vec<Problem> {
    let hooks = config.settings.hooks.at(HookPoint::PostEdit);
    let mistake = |hook: &HookSettings| {
        let wrong = EditHook::check(&hook.command).err()?;
        let key = format!("hooks.{}.{}.command", HookPoint::PostEdit.name(), hook.name);
        Some(config.problem(&key, wrong.to_string()))
    };
    hooks.filter_map(mistake).collect()
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
