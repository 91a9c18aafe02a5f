//! What a configuration says about an agent.

use crate::config::setting_value::words;
use crate::config::settings_reader::SettingsReader;

/// What the layers say about one agent, all together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentConfig {
    /// What it is for, in one line.
    pub description: Option<String>,
    /// Its system prompt.
    pub system_prompt: Option<String>,
    /// The tools that it may use; `*` in a name stands for anything.
    pub allowed_tools: Option<Vec<String>>,
    /// When the user is asked.
    pub confirm_mode: Option<ConfirmModeSetting>,
    /// Replies whose tool calls may run.
    pub max_steps: Option<u32>,
}

/// When the user is asked before a tool call runs; the strictest mode first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfirmModeSetting {
    /// Before each call.
    ConfirmAll,
    /// Before calls that change something.
    ConfirmSensitive,
    /// Never.
    Yolo,
}
words!(ConfirmModeSetting {
    "confirm-all" => ConfirmAll,
    "confirm-sensitive" => ConfirmSensitive,
    "yolo" => Yolo,
});

impl AgentConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            description: from.optional("description"),
            system_prompt: from.optional("system_prompt"),
            allowed_tools: from.optional("allowed_tools"),
            confirm_mode: from.optional("confirm_mode"),
            max_steps: from.optional_in_range("max_steps", 0..=super::run::MAX_STEPS),
        }
    }
}
