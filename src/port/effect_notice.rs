//! Notices that adapters send while an effect runs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::{CallId, TimeSpan, ToolCall, word_enum};

/// Information that isn't an event of the machine. A lost notice changes nothing.
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
    /// The last output of a running command. A newer notice replaces it.
    Output {
        /// The call that runs the command.
        call: CallId,
        /// The last lines.
        text: Arc<str>,
    },
    /// The change of files by a call, or the change that it would have made without a dry run.
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
    /// The reason for the denial.
    pub reason: Arc<str>,
}

/// One run of one hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRun {
    /// The name from the configuration.
    pub name: Arc<str>,
    /// The point at which the hook ran.
    pub point: HookPoint,
    /// The outcome of the run.
    pub outcome: HookOutcome,
    /// The running time.
    #[serde(rename = "took")]
    pub duration: TimeSpan,
    /// The tool call that the hook ran for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The hook's message, if it printed one.
    #[serde(default, rename = "said", skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

/// The outcome of a hook's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub enum HookOutcome {
    /// The hook raised no objection.
    Passed,
    /// The hook blocked the operation.
    Blocked,
    /// The hook could not be run, or failed.
    Failed,
    /// The hook reached its time limit.
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
