//! A scripted reply in each API format that agents use, streamed or not.

use serde_json::{Value, json};

/// The API formats.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    ChatCompletions,
    Responses,
    Messages,
}

impl Format {
    /// Returns the format of a request by its first line.
    pub(super) fn of(request: &[u8]) -> Self {
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let has = |path: &[u8]| memchr::memmem::find(line, path).is_some();
        match () {
            () if has(b"/responses") => Self::Responses,
            () if has(b"/messages") => Self::Messages,
            () => Self::ChatCompletions,
        }
    }
}

/// The content of a reply: one tool call, or `Done.`.
pub(super) struct ScriptedReply<'a> {
    /// The number of the call, the tool, and its arguments.
    pub(super) call: Option<(usize, &'a str, String)>,
    /// The number of input tokens in the reported usage.
    pub(super) tokens: usize,
}

impl ScriptedReply<'_> {
    /// Returns the reply with its head.
    pub(super) fn response(&self, format: Format, streams: bool) -> Vec<u8> {
        let body = match format {
            Format::ChatCompletions => self.chat(streams),
            Format::Responses => self.responses(streams),
            Format::Messages => self.messages(streams),
        };
        let kind = if streams { "text/event-stream" } else { "application/json" };
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
            .into_bytes()
    }

    fn chat(&self, streams: bool) -> String {
        let tokens = self.tokens;
        let usage =
            json!({"prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10});
        let (message, finish) = match &self.call {
            Some((number, tool, arguments)) => {
                let call = json!({"index": 0, "id": format!("call_{number}"), "type": "function",
                    "function": {"name": tool, "arguments": arguments}});
                let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
                (message, "tool_calls")
            }
            None => (json!({"role": "assistant", "content": "Done."}), "stop"),
        };
        if !streams {
            let choice = json!({"index": 0, "message": message, "finish_reason": finish});
            return json!({"id": "c", "object": "chat.completion", "created": 1, "model": "fake",
                "usage": usage, "choices": [choice]})
            .to_string();
        }
        let last = json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
            "model": "fake", "choices": [], "usage": usage});
        let (first, finish) = (chat_chunk(&message, None), chat_chunk(&json!({}), Some(finish)));
        format!("{first}{finish}data: {last}\n\ndata: [DONE]\n\n")
    }

    fn responses(&self, streams: bool) -> String {
        let tokens = self.tokens;
        let item = match &self.call {
            Some((number, tool, arguments)) => {
                json!({"type": "function_call", "status": "completed",
                "id": format!("fc_{number}"), "call_id": format!("call_{number}"), "name": tool,
                "arguments": arguments})
            }
            None => {
                json!({"type": "message", "id": "msg", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "Done.", "annotations": []}]})
            }
        };
        let response = json!({"id": "resp", "object": "response", "created_at": 1, "model": "fake",
            "status": "completed", "output": [item], "usage": {"input_tokens": tokens,
                "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
                "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": tokens + 10}});
        if !streams {
            return response.to_string();
        }
        let begun = json!({"id": "resp", "object": "response", "status": "in_progress"});
        events(&[
            json!({"type": "response.created", "response": begun}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": "response.completed", "response": response}),
        ])
    }

    fn messages(&self, streams: bool) -> String {
        let usage = json!({"input_tokens": self.tokens, "output_tokens": 10});
        let message = |content: Value, stop: Option<&str>| {
            json!({"id": "msg", "type": "message", "role": "assistant", "model": "fake",
                "content": content, "stop_reason": stop, "stop_sequence": null, "usage": usage})
        };
        let (block, delta, stop) = match &self.call {
            Some((number, tool, arguments)) => (
                json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": tool,
                    "input": {}}),
                json!({"type": "input_json_delta", "partial_json": arguments}),
                "tool_use",
            ),
            None => (
                json!({"type": "text", "text": ""}),
                json!({"type": "text_delta", "text": "Done."}),
                "end_turn",
            ),
        };
        if !streams {
            return message(json!([{"type": "text", "text": "Done."}]), Some("end_turn"))
                .to_string();
        }
        events(&[
            json!({"type": "message_start", "message": message(json!([]), None)}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
            json!({"type": "content_block_delta", "index": 0, "delta": delta}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "usage": {"output_tokens": 10},
                "delta": {"stop_reason": stop, "stop_sequence": null}}),
            json!({"type": "message_stop"}),
        ])
    }
}

/// Returns events that are named by their type.
fn events<const N: usize>(data: &[Value; N]) -> String {
    let event =
        |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    data.iter().map(event).collect()
}

/// Returns an event of Chat Completions.
pub(super) fn chat_chunk(delta: &Value, finish: Option<&str>) -> String {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {chunk}\n\n")
}
