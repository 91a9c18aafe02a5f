//! The input of hooks.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::port::HookPoint;
use crate::types::{CallId, FaultKind, FilePath, ToolStatus};

/// The input of a hook: the event at a point of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "hook_event_name", rename_all = "snake_case")]
pub enum HookInput {
    /// The run begins.
    SessionStart {
        /// The task.
        prompt: Arc<str>,
    },
    /// The model is about to be called.
    PreLlmCall {
        /// The system prompt; a hook may change it.
        #[serde(rename = "system_prompt")]
        system: Arc<str>,
        /// The names of the available tools; a hook may remove some.
        tools: Vec<Arc<str>>,
    },
    /// The model has answered.
    PostLlmCall {
        /// The text of the reply.
        text: Arc<str>,
        /// The names of the tools that the reply calls.
        #[serde(rename = "tool_calls")]
        tools: Vec<Arc<str>>,
    },
    /// A tool call is about to run.
    PreToolUse {
        /// The id of the call.
        #[serde(rename = "tool_use_id")]
        call: CallId,
        /// The name of the tool.
        #[serde(rename = "tool_name")]
        tool: Arc<str>,
        /// The arguments, an object; a hook may change them.
        #[serde(rename = "tool_input")]
        input: Value,
    },
    /// A tool call has run.
    PostToolUse {
        /// The id of the call.
        #[serde(rename = "tool_use_id")]
        call: CallId,
        /// The name of the tool.
        #[serde(rename = "tool_name")]
        tool: Arc<str>,
        /// The arguments.
        #[serde(rename = "tool_input")]
        input: Value,
        /// The status of the result.
        #[serde(rename = "tool_status")]
        status: ToolStatus,
        /// The result for the model; a hook may change it.
        #[serde(rename = "tool_response")]
        output: Arc<str>,
    },
    /// A tool call has changed a file.
    PostEdit {
        /// The id of the call.
        #[serde(rename = "tool_use_id")]
        call: CallId,
        /// The name of the tool.
        #[serde(rename = "tool_name")]
        tool: Arc<str>,
        /// The file, relative to the workspace.
        file: FilePath,
    },
    /// The context is about to be compacted.
    PreCompact,
    /// The context was compacted.
    PostCompact,
    /// The model has given its final answer.
    Stop {
        /// The answer.
        answer: Arc<str>,
        /// The number of answers that hooks and gates have rejected in this run.
        sent_back: u32,
    },
    /// The run is over.
    SessionEnd {
        /// `success`, `partial` or `failed`.
        status: Arc<str>,
        /// The reason for the end.
        stop_reason: Arc<str>,
        /// The final output of the run.
        output: Arc<str>,
        /// The number of replies whose tool calls ran.
        steps: u32,
    },
    /// Something failed: a model call, or the run.
    OnError {
        /// The kind of fault of a model call; `None` if the run itself failed.
        fault: Option<FaultKind>,
        /// The error message.
        message: Arc<str>,
    },
}

/// Facts about the session for every hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookSession {
    /// The id of the session.
    pub id: Arc<str>,
    /// The workspace, which is the working directory of hooks.
    pub workspace: PathBuf,
    /// The name of the agent.
    pub agent: Arc<str>,
    /// The name of the model.
    pub model: Arc<str>,
    /// Whether the session is resumed.
    pub is_resumed: bool,
    /// The number of nested hooks that this process runs in; 0 unless a hook started it.
    pub depth: u32,
}

impl HookInput {
    /// Returns the point of the run.
    pub fn point(&self) -> HookPoint {
        match self {
            Self::SessionStart { .. } => HookPoint::SessionStart,
            Self::PreLlmCall { .. } => HookPoint::PreLlmCall,
            Self::PostLlmCall { .. } => HookPoint::PostLlmCall,
            Self::PreToolUse { .. } => HookPoint::PreToolUse,
            Self::PostToolUse { .. } => HookPoint::PostToolUse,
            Self::PostEdit { .. } => HookPoint::PostEdit,
            Self::PreCompact => HookPoint::PreCompact,
            Self::PostCompact => HookPoint::PostCompact,
            Self::Stop { .. } => HookPoint::Stop,
            Self::SessionEnd { .. } => HookPoint::SessionEnd,
            Self::OnError { .. } => HookPoint::OnError,
        }
    }

    /// Returns the tool call of the event, and its tool.
    pub fn tool_call(&self) -> Option<(&CallId, &str)> {
        match self {
            Self::PreToolUse { call, tool, .. }
            | Self::PostToolUse { call, tool, .. }
            | Self::PostEdit { call, tool, .. } => Some((call, tool)),
            _ => None,
        }
    }

    /// Returns the JSON object for commands, with field names known from hooks of other agents.
    pub(super) fn to_json(&self, session: &HookSession) -> Value {
        let source = if session.is_resumed { "resume" } else { "startup" };
        let facts = HookPayload {
            input: self,
            session_id: &session.id,
            cwd: session.workspace.display().to_string(),
            agent: &session.agent,
            model: &session.model,
            source: matches!(self, Self::SessionStart { .. }).then_some(source),
            stop_hook_active: match self {
                Self::Stop { sent_back, .. } => Some(*sent_back > 0),
                _ => None,
            },
        };
        serde_json::to_value(facts).unwrap_or_default()
    }
}

/// The standard input of a command: the event, and facts about the session.
#[derive(Serialize)]
struct HookPayload<'a> {
    #[serde(flatten)]
    input: &'a HookInput,
    session_id: &'a str,
    cwd: String,
    agent: &'a str,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_hook_active: Option<bool>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The names of the fields are a public interface.
    #[test]
    fn the_input_of_commands_has_these_fields() {
        let session = HookSession { id: "s".into(), workspace: "/w".into(), ..Default::default() };
        let (call, tool) = (CallId::from("c"), Arc::<str>::from("grep"));
        for (input, own) in [
            (
                HookInput::SessionStart { prompt: "p".into() },
                json!({ "source": "startup", "prompt": "p" }),
            ),
            (
                HookInput::PreLlmCall { system: "s".into(), tools: vec!["t".into()] },
                json!({ "system_prompt": "s", "tools": ["t"] }),
            ),
            (
                HookInput::PostLlmCall { text: "x".into(), tools: vec!["t".into()] },
                json!({ "text": "x", "tool_calls": ["t"] }),
            ),
            (
                HookInput::PreToolUse { call: call.clone(), tool: tool.clone(), input: json!({}) },
                json!({ "tool_use_id": "c", "tool_name": "grep", "tool_input": {} }),
            ),
            (
                HookInput::PostToolUse {
                    call: call.clone(),
                    tool: tool.clone(),
                    input: json!({}),
                    status: ToolStatus::Ok,
                    output: "o".into(),
                },
                json!({
                    "tool_use_id": "c", "tool_name": "grep", "tool_input": {},
                    "tool_status": "ok", "tool_response": "o",
                }),
            ),
            (
                HookInput::PostEdit { call, tool, file: "f".into() },
                json!({ "tool_use_id": "c", "tool_name": "grep", "file": "f" }),
            ),
            (HookInput::PreCompact, json!({})),
            (
                HookInput::Stop { answer: "a".into(), sent_back: 1 },
                json!({ "answer": "a", "sent_back": 1, "stop_hook_active": true }),
            ),
            (
                HookInput::SessionEnd {
                    status: "success".into(),
                    stop_reason: "r".into(),
                    output: "o".into(),
                    steps: 2,
                },
                json!({ "status": "success", "stop_reason": "r", "output": "o", "steps": 2 }),
            ),
            (
                HookInput::OnError { fault: None, message: "m".into() },
                json!({ "fault": null, "message": "m" }),
            ),
        ] {
            let mut expected = json!({
                "hook_event_name": input.point().as_str(), "session_id": "s", "cwd": "/w", "agent": "", "model": "",
            });
            expected.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            assert_eq!(input.to_json(&session), expected);
        }
    }
}
