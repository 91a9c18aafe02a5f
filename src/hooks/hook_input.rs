//! The input of hooks.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::model::{CallId, FaultKind, ToolStatus};
use crate::port::HookPoint;

/// The input of a hook: the event at a point of the run.
#[derive(Clone, Debug, PartialEq)]
pub enum HookInput {
    /// The run begins.
    SessionStart {
        /// The task.
        prompt: Arc<str>,
    },
    /// The model is about to be called.
    PreLlmCall {
        /// The system prompt; a hook may change it.
        system: Arc<str>,
        /// The names of the available tools; a hook may remove some.
        tools: Vec<Arc<str>>,
    },
    /// The model has answered.
    PostLlmCall {
        /// What it wrote.
        text: Arc<str>,
        /// The names of the tools that it calls.
        tools: Vec<Arc<str>>,
    },
    /// A tool call is about to run.
    PreToolUse {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// Its arguments, an object; a hook may change them.
        input: Value,
    },
    /// A tool call has run.
    PostToolUse {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// Its arguments.
        input: Value,
        /// How it ended.
        status: ToolStatus,
        /// The result for the model; a hook may change it.
        output: Arc<str>,
    },
    /// A tool call has changed a file.
    PostEdit {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The file, relative to the workspace.
        file: Arc<str>,
    },
    /// The context is about to be compacted.
    PreCompact,
    /// The context was compacted.
    PostCompact,
    /// The model has given its final answer.
    Stop {
        /// The answer.
        answer: Arc<str>,
        /// How many answers of this run hooks and gates have rejected.
        sent_back: u32,
    },
    /// The run is over.
    SessionEnd {
        /// `success`, `partial` or `failed`.
        status: Arc<str>,
        /// Why it ended.
        stop_reason: Arc<str>,
        /// Its final output.
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
    /// The session.
    pub id: Arc<str>,
    /// The workspace, and working directory of hooks.
    pub workspace: PathBuf,
    /// The agent.
    pub agent: Arc<str>,
    /// The model.
    pub model: Arc<str>,
    /// Whether the session is resumed.
    pub is_resumed: bool,
    /// How many nested hooks this process runs in; 0 unless a hook started it.
    pub depth: u32,
}

impl HookInput {
    /// Returns the point.
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
            Self::SessionStart { .. }
            | Self::PreLlmCall { .. }
            | Self::PostLlmCall { .. }
            | Self::PreCompact
            | Self::PostCompact
            | Self::Stop { .. }
            | Self::SessionEnd { .. }
            | Self::OnError { .. } => None,
        }
    }

    /// Returns the JSON object for commands, with names known from hooks of other agents.
    pub fn to_json(&self, session: &HookSession) -> Value {
        let mut all = Map::new();
        all.insert("hook_event_name".to_owned(), self.point().as_str().into());
        all.insert("session_id".to_owned(), (*session.id).into());
        all.insert("cwd".to_owned(), session.workspace.display().to_string().into());
        all.insert("agent".to_owned(), (*session.agent).into());
        all.insert("model".to_owned(), (*session.model).into());
        let own = match self {
            Self::SessionStart { prompt } => {
                let source = if session.is_resumed { "resume" } else { "startup" };
                json!({ "source": source, "prompt": prompt })
            }
            Self::PreLlmCall { system, tools } => {
                json!({ "system_prompt": system, "tools": tools })
            }
            Self::PostLlmCall { text, tools } => json!({ "text": text, "tool_calls": tools }),
            Self::PreToolUse { call, tool, input } => {
                json!({ "tool_use_id": call, "tool_name": tool, "tool_input": input })
            }
            Self::PostToolUse { call, tool, input, status, output } => json!({
                "tool_use_id": call, "tool_name": tool, "tool_input": input,
                "tool_status": status, "tool_response": output,
            }),
            Self::PostEdit { call, tool, file } => {
                json!({ "tool_use_id": call, "tool_name": tool, "file": file })
            }
            Self::PreCompact | Self::PostCompact => json!({}),
            Self::Stop { answer, sent_back } => {
                json!({ "answer": answer, "sent_back": sent_back, "stop_hook_active": *sent_back > 0 })
            }
            Self::SessionEnd { status, stop_reason, output, steps } => json!({
                "status": status, "stop_reason": stop_reason, "output": output, "steps": steps,
            }),
            Self::OnError { fault, message } => json!({ "fault": fault, "message": message }),
        };
        if let Value::Object(own) = own {
            all.extend(own);
        }
        Value::Object(all)
    }
}
