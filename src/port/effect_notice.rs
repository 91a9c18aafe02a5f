//! Notices of adapters while an effect runs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::{CallId, TimeSpan, ToolCall, word_enum};

/// Information that isn't an event of the machine. Losing a notice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectNotice {
    /// A hook has run.
    Hook(HookRun),
    /// The progress of a long operation. A newer notice replaces it.
    Progress {
        /// The current operation.
        text: Arc<str>,
    },
    /// The end of what a running command has printed. A newer notice replaces it.
    Output {
        /// The call that runs it.
        call: CallId,
        /// The last lines.
        text: Arc<str>,
    },
    /// The change of files that a call has made, or would have made without a dry run.
    Diff {
        /// The call.
        call: CallId,
        /// The change as a unified diff.
        diff: Arc<str>,
    },
    /// A tool call of a sub-agent was denied.
    SubagentDenied(SubagentDenial),
    /// A problem that doesn't stop the run, such as a lost server.
    Warning {
        /// The warning.
        text: Arc<str>,
    },
}

/// A tool call of a sub-agent that was denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentDenial {
    /// The call that dispatched the sub-agent.
    pub dispatched_by: CallId,
    /// The sub-agent.
    pub agent: Arc<str>,
    /// The denied call.
    pub call: ToolCall,
    /// Why it was denied.
    pub reason: Arc<str>,
}

/// One run of one hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRun {
    /// The name from the configuration.
    pub name: Arc<str>,
    /// The point at which it ran.
    pub point: HookPoint,
    /// How it ended.
    pub outcome: HookOutcome,
    /// How long it ran.
    #[serde(rename = "took")]
    pub duration: TimeSpan,
    /// The tool call that it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Its message, if it has one.
    #[serde(default, rename = "said", skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

/// How a hook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub enum HookOutcome {
    /// It raised no objection.
    Passed,
    /// It blocked the operation.
    Blocked,
    /// It could not be run, or failed.
    Failed,
    /// It reached its time limit.
    TimedOut,
}

word_enum! {
    /// A point at which hooks run.
    pub enum HookPoint {
        /// A session begins.
        SessionStart = "session_start",
        /// The model is about to be called.
        PreLlmCall = "pre_llm_call",
        /// The model has answered.
        PostLlmCall = "post_llm_call",
        /// A tool is about to run.
        PreToolUse = "pre_tool_use",
        /// A tool has run.
        PostToolUse = "post_tool_use",
        /// A tool has changed a file.
        PostEdit = "post_edit",
        /// The context is about to be compacted.
        PreCompact = "pre_compact",
        /// The context was compacted.
        PostCompact = "post_compact",
        /// The run is about to end with an answer.
        Stop = "stop",
        /// A session ends.
        SessionEnd = "session_end",
        /// Something failed.
        OnError = "on_error",
    }
}
