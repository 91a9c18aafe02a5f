//! The user's commands at fixed points of a run.

use std::collections::BTreeMap;

use super::run::time_limit;
use crate::config::setting_value::words;
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::{ConfigName, PathPattern};
use crate::model::TimeSpan;
use crate::port::HookPoint;

/// The hooks of each point, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HooksConfig(pub BTreeMap<HookPoint, Vec<HookConfig>>);

/// A command at one point of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct HookConfig {
    /// Its name.
    pub name: ConfigName,
    /// The command, for a shell.
    pub command: String,
    /// How long it may take.
    pub timeout: TimeSpan,
    /// Whether it runs.
    pub enabled: bool,
    /// What its failure means.
    pub on_failure: OnFailureSetting,
    /// Whether it is confined as commands are.
    pub sandbox: HookConfinement,
    /// The tools that it is for, as a pattern on their names; none is every tool. Only for hooks of tools.
    pub matcher: Option<String>,
    /// The files that it is for. Only for `post_edit`.
    pub file_patterns: Vec<PathPattern>,
}

/// What a hook's failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailureSetting {
    /// A warning.
    Ignore,
    /// A refusal.
    Block,
}
words!(OnFailureSetting { "ignore" => Ignore, "block" => Block });

/// Whether a hook is confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookConfinement {
    /// As commands are.
    #[default]
    On,
    /// Not at all: it runs with all rights of the user. Only the user's own configuration may say so.
    Off,
}
words!(HookConfinement { "on" => On, "off" => Off });

impl HooksConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        let of = |point: HookPoint| {
            let hooks =
                from.table_list(point.name(), |name, from| HookConfig::read(point, name, from));
            (point, hooks)
        };
        Self(HookPoint::ALL.into_iter().map(of).collect())
    }

    /// Returns the hooks of a point that are enabled, in the order in which they run.
    pub fn enabled_at(&self, point: HookPoint) -> impl Iterator<Item = &HookConfig> {
        self.0.get(&point).into_iter().flatten().filter(|hook| hook.enabled)
    }
}

impl HookConfig {
    fn read(point: HookPoint, name: ConfigName, from: &mut SettingsReader<'_>) -> Option<Self> {
        let command = from.required("command");
        Some(Self {
            name,
            timeout: time_limit(from, "timeout", TimeSpan::from_secs(10)),
            enabled: from.value_or("enabled", true),
            on_failure: from.value_or("on_failure", OnFailureSetting::Ignore),
            sandbox: from.value_or("sandbox", HookConfinement::On),
            matcher: is_tool_point(point).then(|| from.optional("matcher")).flatten(),
            file_patterns: match point {
                HookPoint::PostEdit => from.value_or("file_patterns", Vec::new()),
                _ => Vec::new(),
            },
            command: command?,
        })
    }
}

fn is_tool_point(point: HookPoint) -> bool {
    matches!(point, HookPoint::PreToolUse | HookPoint::PostToolUse | HookPoint::PostEdit)
}
