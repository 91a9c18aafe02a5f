//! Commands of the user at fixed points of a run.

use std::collections::BTreeMap;

use super::timeout;
use crate::config::key_declaration::{default, given, optional, required, section, table_list};
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::{ConfigName, PathPattern};
use crate::port::HookPoint;
use crate::types::{HookFailurePolicy, TimeSpan, word_enum};

/// The hooks of each point, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HooksConfig(pub BTreeMap<HookPoint, Vec<HookConfig>>);

impl HooksConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        let read = |point: HookPoint| {
            let hooks = table_list(|name, from| Some(HookConfig::read(name, point, from)));
            let hooks = match point {
                HookPoint::PreToolUse => hooks.example(GUARD),
                HookPoint::PostEdit => hooks.example(FORMAT),
                _ => hooks,
            };
            (point, from.read(point.as_str(), "Hooks of this point.", hooks))
        };
        Self(HookPoint::ALL.into_iter().map(read).collect())
    }

    /// Returns the hooks of a point that are enabled, in the order in which they run.
    pub fn enabled_at(&self, point: HookPoint) -> impl Iterator<Item = &HookConfig> {
        self.0.get(&point).into_iter().flatten().filter(|hook| hook.enabled)
    }
}

const GUARD: &str = "[[hooks.pre_tool_use]]\nname = \"guard\"\ncommand = \"./scripts/guard.sh\"\n\
                     matcher = \"run_command|write_*\"\non_failure = \"block\"\n";
const FORMAT: &str = "[[hooks.post_edit]]\nname = \"format\"\ncommand = \"my-formatter {file}\"\n\
                      file_patterns = [\"*.txt\"]\n";

section! {
    /// A command at one point of a run.
    pub struct HookConfig(hook: ConfigName, point: HookPoint) {
        /// The name.
        name: ConfigName = given(hook),
        /// The shell command. In `post_edit`, {file} and `$ARCHITECT_EDITED_FILE` stand for the path of the file.
        command: String = required(),
        /// Seconds for the command.
        timeout: TimeSpan = timeout(10),
        /// Whether the hook runs.
        enabled: bool = default(true),
        /// The effect of a failure of the hook: "ignore" logs a warning, "block" acts like exit code 2.
        on_failure: HookFailurePolicy = default(HookFailurePolicy::Ignore),
        /// Whether the hook is confined like commands; "off" gives it all rights of the user. Only the user's own
        /// configuration can set "off".
        sandbox: HookConfinement = default(HookConfinement::On),
        /// For hooks of tool calls: a pattern for the tool's name; by default every tool.
        matcher: Option<String> = optional().only_if(is_tool_point(point)),
        /// For `post_edit`: patterns for the file's path; by default every file.
        file_patterns: Vec<PathPattern> = default(Vec::new()).only_if(point == HookPoint::PostEdit),
    }
}

word_enum! {
    /// Whether a hook is confined.
    #[derive(Default)]
    pub enum HookConfinement {
        /// Confined as commands are.
        #[default]
        On = "on",
        /// Not confined: the hook runs with all rights of the user.
        Off = "off",
    }
}

fn is_tool_point(point: HookPoint) -> bool {
    matches!(point, HookPoint::PreToolUse | HookPoint::PostToolUse | HookPoint::PostEdit)
}
