//! The user's hooks, as the settings have them.

use std::sync::Arc;

use super::sandbox::Sandbox;
use crate::config::{Config, ConfigProblem, HookConfig, HookConfinement, PathPattern};
use crate::hooks::{CommandHook, HookMatcher, HookSession, Hooks, check_placeholder};
use crate::port::HookPoint;

/// Returns the hooks of a run, in order.
///
/// # Errors
///
/// Fails if the pattern of one is invalid, or its command can't be given a file's name.
pub(super) fn build_hooks(
    config: &Config,
    sandbox: &Sandbox,
    session: HookSession,
) -> Result<Hooks, ConfigProblem> {
    let session = Arc::new(session);
    let confined = Arc::new(sandbox.checks.clone());
    let free = Arc::new(sandbox.user.clone());
    let mut hooks = Hooks::new();
    for point in HookPoint::ALL {
        for hook in config.settings.hooks.enabled_at(point) {
            let key = |part: &str| format!("hooks.{}.{}.{part}", point.as_str(), hook.name);
            let place = hook_registration(point, hook)
                .map_err(|error| config.problem_with(&key("file_patterns"), error.to_string()))?;
            let shell = match hook.sandbox {
                HookConfinement::On => &confined,
                HookConfinement::Off => &free,
            };
            let (session, shell) = (Arc::clone(&session), Arc::clone(shell));
            let mut command = CommandHook::new(&*hook.command, hook.timeout.into(), session, shell);
            if point == HookPoint::PostEdit {
                command = command
                    .with_file_placeholder()
                    .map_err(|error| config.problem_with(&key("command"), error.to_string()))?;
            }
            hooks = hooks.with(place, command);
        }
    }
    Ok(hooks)
}

/// Returns what is wrong with the commands of hooks.
pub(super) fn invalid_commands(config: &Config) -> Vec<ConfigProblem> {
    let hooks = config.settings.hooks.enabled_at(HookPoint::PostEdit);
    let mistake = |hook: &HookConfig| {
        let wrong = check_placeholder(&hook.command).err()?;
        let key = format!("hooks.{}.{}.command", HookPoint::PostEdit.as_str(), hook.name);
        Some(config.problem_with(&key, wrong.to_string()))
    };
    hooks.filter_map(mistake).collect()
}

fn hook_registration(point: HookPoint, hook: &HookConfig) -> Result<HookMatcher, globset::Error> {
    let place = HookMatcher {
        tools: hook.matcher.clone(),
        on_failure: hook.on_failure,
        ..HookMatcher::for_point(point, hook.name.as_str())
    };
    place.with_files(hook.file_patterns.iter().map(PathPattern::as_str))
}
