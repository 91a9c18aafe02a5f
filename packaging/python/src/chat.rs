//! Requests and replies of a model, as the chat messages that most Python libraries take and return.

use std::time::Duration;

use architect::machine::ConversationEntry;
use architect::port::{ModelRequest, ToolSpec};
use architect::types::{
    CallId, ConversationItem, Fault, FaultKind, Reply, ReplyFinish, ReplyPart, TimeSpan, Tokens,
    ToolCall, Usage,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// A request that is sent to a function of the user.
pub(crate) struct ChatRequest {
    json: String,
    /// The prefix of the ids for tool calls in the reply that come without one. Ids of entries are never used again.
    call_prefix: String,
}

/// The return value of such a function.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatReply {
    text: String,
    tool_calls: Vec<ChatToolCall>,
    finish: Option<String>,
    usage: Option<Usage>,
    model: Option<String>,
    fault: Option<ChatFault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatToolCall {
    id: Option<String>,
    name: String,
    /// The text of a JSON object, as models write it.
    arguments: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatFault {
    kind: FaultKind,
    message: String,
    /// In seconds.
    retry_after: Option<f64>,
}

/// The approximate number of bytes in a token.
const BYTES_PER_TOKEN: usize = 4;

/// Returns the messages of entries.
pub(crate) fn messages(entries: &[ConversationEntry]) -> Vec<Value> {
    let mut messages = Vec::new();
    for entry in entries {
        match &entry.item {
            ConversationItem::User(message) => {
                messages.push(json!({"role": "user", "content": message.text}));
            }
            ConversationItem::Assistant(reply) => {
                messages.push(json!({"role": "assistant", "content": reply.text()}));
            }
            ConversationItem::Exchange(exchange) => {
                let reply = exchange.reply();
                let calls: Vec<Value> = reply.calls().map(tool_call).collect();
                let text = reply.has_text().then(|| reply.text());
                messages.push(json!({"role": "assistant", "content": text, "tool_calls": calls}));
                messages.extend(exchange.results().iter().map(|result| {
                    json!({"role": "tool", "tool_call_id": result.call, "content": result.text})
                }));
            }
        }
    }
    messages
}

fn tool_call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments.text()});
    json!({"id": call.id, "type": "function", "function": function})
}

fn tool(spec: &ToolSpec) -> Value {
    let ToolSpec { name, description, schema } = spec;
    let function = json!({"name": name, "description": description, "parameters": schema});
    json!({"type": "function", "function": function})
}

impl ChatRequest {
    pub(crate) fn new(request: &ModelRequest<'_>) -> Self {
        let mut all = vec![json!({"role": "system", "content": request.system})];
        all.extend(messages(request.entries));
        all.extend(request.instruction.map(|text| json!({"role": "user", "content": text})));
        let document = json!({
            "messages": all,
            "tools": request.tools.iter().map(tool).collect::<Vec<_>>(),
            "purpose": request.purpose,
            "attempt": request.attempt,
            "max_output_tokens": request.max_output,
            "output_schema": request.schema,
        });
        let last = request.entries.last().map_or(0, |entry| entry.id.0);
        Self { json: document.to_string(), call_prefix: format!("call_{last}") }
    }

    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// Parses the return value of the function.
    ///
    /// # Errors
    ///
    /// Fails with the fault that the function raised, or with a fault that describes why its reply is invalid.
    pub(crate) fn parse_reply(&self, text: &str) -> Result<Reply, Fault> {
        let invalid = |error: serde_json::Error| {
            fault(FaultKind::Request, &format!("invalid reply: {error}"))
        };
        let ChatReply { text, tool_calls, finish, usage, model, fault: raised } =
            serde_json::from_str(text).map_err(invalid)?;
        if let Some(ChatFault { kind, message, retry_after }) = raised {
            let wait = retry_after.and_then(|wait| Duration::try_from_secs_f64(wait).ok());
            return Err(Fault { retry_after: wait.map(TimeSpan::from), ..fault(kind, &message) });
        }
        let finish = match finish.as_deref() {
            None if tool_calls.is_empty() => ReplyFinish::Stop,
            None => ReplyFinish::ToolCalls,
            Some(name) => finish_reason(name),
        };
        let written = tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
        let written = text.len() + written.sum::<usize>();
        let usage = usage.unwrap_or_else(|| Usage {
            input: tokens(self.json.len()),
            output: tokens(written),
            is_estimated: true,
            ..Usage::default()
        });
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(ReplyPart::Text(text.into()));
        }
        let last = tool_calls.len().saturating_sub(1);
        for (index, ChatToolCall { id, name, arguments }) in tool_calls.into_iter().enumerate() {
            let id = id.unwrap_or_else(|| format!("{}_{index}", self.call_prefix));
            let call = ToolCall::new(CallId(id.into()), &name, &arguments);
            let is_cut = finish == ReplyFinish::Length && index == last;
            parts.push(ReplyPart::Call(if is_cut { call.mark_truncated() } else { call }));
        }
        Ok(Reply { parts: parts.into(), finish, usage, model: model.map(Into::into) })
    }
}

/// Returns the reason for a name; `tool_use`, `end_turn` and the like are those of other libraries.
fn finish_reason(name: &str) -> ReplyFinish {
    match name {
        "stop" | "end_turn" | "stop_sequence" => ReplyFinish::Stop,
        "tool_calls" | "tool_use" => ReplyFinish::ToolCalls,
        "length" | "max_tokens" => ReplyFinish::Length,
        "pause" | "pause_turn" => ReplyFinish::Pause,
        "refused" | "refusal" | "content_filter" => ReplyFinish::Refused,
        "context_full" | "model_context_window_exceeded" => ReplyFinish::ContextFull,
        other => ReplyFinish::Other(other.into()),
    }
}

fn tokens(bytes: usize) -> Tokens {
    Tokens(bytes.div_ceil(BYTES_PER_TOKEN) as u64)
}

/// Returns a fault, whose message is printed in logs and on terminals.
pub(crate) fn fault(kind: FaultKind, message: &str) -> Fault {
    let plain: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Fault::new(kind, plain)
}
