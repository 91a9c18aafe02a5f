//! The points of a run at which hooks run.

use serde::{Deserialize, Serialize};

/// A point of a run at which hooks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// The run begins.
    SessionStart,
    /// The model is about to be called.
    PreLlmCall,
    /// The model has answered.
    PostLlmCall,
    /// A tool call is about to run.
    PreToolUse,
    /// A tool call has run.
    PostToolUse,
    /// A tool call has changed a file.
    PostEdit,
    /// The context is about to be compacted.
    PreCompact,
    /// The context was compacted.
    PostCompact,
    /// The model has given its final answer.
    Stop,
    /// The run is over.
    SessionEnd,
    /// Something failed.
    OnError,
}

impl HookPoint {
    /// Every point, in the order in which a run comes to them.
    pub const ALL: [Self; 11] = [
        Self::SessionStart,
        Self::PreLlmCall,
        Self::PostLlmCall,
        Self::PreToolUse,
        Self::PostToolUse,
        Self::PostEdit,
        Self::PreCompact,
        Self::PostCompact,
        Self::Stop,
        Self::SessionEnd,
        Self::OnError,
    ];

    /// Returns the name that configuration and hooks use.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStart => "session_start",
            Self::PreLlmCall => "pre_llm_call",
            Self::PostLlmCall => "post_llm_call",
            Self::PreToolUse => "pre_tool_use",
            Self::PostToolUse => "post_tool_use",
            Self::PostEdit => "post_edit",
            Self::PreCompact => "pre_compact",
            Self::PostCompact => "post_compact",
            Self::Stop => "stop",
            Self::SessionEnd => "session_end",
            Self::OnError => "on_error",
        }
    }

    /// Returns whether a hook of this point is about one tool call.
    pub fn is_about_a_tool(self) -> bool {
        match self {
            Self::PreToolUse | Self::PostToolUse | Self::PostEdit => true,
            Self::SessionStart
            | Self::PreLlmCall
            | Self::PostLlmCall
            | Self::PreCompact
            | Self::PostCompact
            | Self::Stop
            | Self::SessionEnd
            | Self::OnError => false,
        }
    }
}
