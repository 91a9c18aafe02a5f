//! The user's commands at fixed points of a run.

use std::collections::BTreeMap;

use super::run::time_limit;
use crate::config::reader::Reader;
use crate::config::setting::words;
use crate::config::text::{Name, PathPattern};
use crate::model::Span;
use crate::port::HookPoint;

/// The hooks of each point, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hooks(pub BTreeMap<HookPoint, Vec<HookSettings>>);

/// A command at one point of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct HookSettings {
    /// Its name.
    pub name: Name,
    /// The command, for a shell.
    pub command: String,
    /// How long it may take.
    pub timeout: Span,
    /// Whether it runs.
    pub enabled: bool,
    /// What its failure means.
    pub on_failure: OnFailure,
    /// Whether it is confined as commands are.
    pub sandbox: HookSandbox,
    /// The tools that it is for, as a pattern on their names; none is every tool. Only for hooks of tools.
    pub matcher: Option<String>,
    /// The files that it is for. Only for `post_edit`.
    pub file_patterns: Vec<PathPattern>,
}

/// What a hook's failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// A warning.
    Ignore,
    /// A refusal.
    Block,
}
words!(OnFailure { "ignore" => Ignore, "block" => Block });

/// Whether a hook is confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookSandbox {
    /// As commands are.
    #[default]
    On,
    /// Not at all: it runs with all rights of the user. Only the user's own configuration may say so.
    Off,
}
words!(HookSandbox { "on" => On, "off" => Off });

impl Hooks {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        let of = |point: HookPoint| {
            let hooks = from.list(point.name(), |name, from| HookSettings::read(point, name, from));
            (point, hooks)
        };
        Self(HookPoint::ALL.into_iter().map(of).collect())
    }

    /// Returns the hooks of a point that are enabled, in the order in which they run.
    pub fn at(&self, point: HookPoint) -> impl Iterator<Item = &HookSettings> {
        self.0.get(&point).into_iter().flatten().filter(|hook| hook.enabled)
    }
}

impl HookSettings {
    fn read(point: HookPoint, name: Name, from: &mut Reader<'_>) -> Option<Self> {
        let command = from.need("command");
        Some(Self {
            name,
            timeout: time_limit(from, "timeout", Span::secs(10)),
            enabled: from.or("enabled", true),
            on_failure: from.or("on_failure", OnFailure::Ignore),
            sandbox: from.or("sandbox", HookSandbox::On),
            matcher: is_about_a_tool(point).then(|| from.maybe("matcher")).flatten(),
            file_patterns: match point {
                HookPoint::PostEdit => from.or("file_patterns", Vec::new()),
                _ => Vec::new(),
            },
            command: command?,
        })
    }
}

fn is_about_a_tool(point: HookPoint) -> bool {
    matches!(point, HookPoint::PreToolUse | HookPoint::PostToolUse | HookPoint::PostEdit)
}
