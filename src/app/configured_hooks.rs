//! The user's hooks, from the settings.

use std::sync::Arc;

use super::error::AppError;
use super::run_setup::RunSetup;
use crate::config::{Config, ConfigProblem, HookConfig, HookConfinement, PathPattern};
use crate::hooks::{CommandHook, HookMatcher, HookSession, Hooks, check_placeholder};
use crate::net::Secrets;
use crate::port::HookPoint;

impl RunSetup {
    /// Returns the hooks of a run, in order.
    ///
    /// # Errors
    ///
    /// Fails if the pattern of a hook is invalid, or its command uses `{file}` unsafely.
    pub(super) fn hooks(
        &self,
        session: &Arc<str>,
        is_resumed: bool,
        secrets: Secrets,
    ) -> Result<Arc<Hooks>, AppError> {
        let session = Arc::new(HookSession {
            id: Arc::clone(session),
            workspace: self.root.path().to_owned(),
            agent: self.agent.name.as_str().into(),
            model: self.model.name(),
            is_resumed,
            depth: self.hook_depth,
        });
        let config = &self.config;
        let confined = Arc::new(self.sandbox.checks.clone());
        let free = Arc::new(self.sandbox.user.clone());
        let mut hooks = Hooks::new();
        for point in HookPoint::ALL {
            for hook in config.settings.hooks.enabled_at(point) {
                let matcher = HookMatcher {
                    tools: hook.matcher.clone(),
                    on_failure: hook.on_failure,
                    ..HookMatcher::for_point(point, hook.name.as_str())
                };
                let matcher = matcher
                    .with_files(hook.file_patterns.iter().map(PathPattern::as_str))
                    .map_err(|error| problem(config, point, hook, "file_patterns", &error))?;
                let shell = match hook.sandbox {
                    HookConfinement::On => &confined,
                    HookConfinement::Off => &free,
                };
                let (session, shell) = (Arc::clone(&session), Arc::clone(shell));
                let mut command =
                    CommandHook::new(&*hook.command, hook.timeout.into(), session, shell);
                if point == HookPoint::PostEdit {
                    command = command
                        .with_file_placeholder()
                        .map_err(|error| problem(config, point, hook, "command", &error))?;
                }
                hooks = hooks.with(matcher, command);
            }
        }
        Ok(Arc::new(hooks.with_mask(move |text| secrets.mask_cut(text.to_owned()))))
    }
}

/// Returns the problems with the commands of hooks.
pub(super) fn invalid_commands(config: &Config) -> impl Iterator<Item = ConfigProblem> + '_ {
    let point = HookPoint::PostEdit;
    config.settings.hooks.enabled_at(point).filter_map(move |hook| {
        let error = check_placeholder(&hook.command).err()?;
        Some(problem(config, point, hook, "command", &error))
    })
}

fn problem(
    config: &Config,
    point: HookPoint,
    hook: &HookConfig,
    key: &str,
    error: &dyn std::fmt::Display,
) -> ConfigProblem {
    let key = format!("hooks.{}.{}.{key}", point.as_str(), hook.name);
    config.problem_with(&key, error.to_string())
}
