//! What a configuration says about an agent.

use crate::config::reader::Reader;
use crate::config::setting::words;

/// What the layers say about one agent, all together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentSettings {
    /// What it is for, in one line.
    pub description: Option<String>,
    /// Its system prompt.
    pub system_prompt: Option<String>,
    /// The tools that it may use; `*` in a name stands for anything.
    pub allowed_tools: Option<Vec<String>>,
    /// When the user is asked.
    pub confirm_mode: Option<ConfirmMode>,
    /// Replies whose tool calls may run.
    pub max_steps: Option<u32>,
}

/// When the user is asked before a tool call runs; the strictest mode first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfirmMode {
    /// Before each call.
    ConfirmAll,
    /// Before calls that change something.
    ConfirmSensitive,
    /// Never.
    Yolo,
}
words!(ConfirmMode {
    "confirm-all" => ConfirmAll,
    "confirm-sensitive" => ConfirmSensitive,
    "yolo" => Yolo,
});

impl AgentSettings {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self {
            description: from.maybe("description"),
            system_prompt: from.maybe("system_prompt"),
            allowed_tools: from.maybe("allowed_tools"),
            confirm_mode: from.maybe("confirm_mode"),
            max_steps: from.maybe_within("max_steps", 0..=super::run::MOST_STEPS),
        }
    }
}
