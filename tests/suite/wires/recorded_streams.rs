//! Recorded streams in all forms in which a server may send them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::kit::server::{ScriptedReply, chunk};
use crate::simulator::rng::Rng;

/// A recorded stream and its content.
pub(crate) struct Recording {
    /// The folder and the name, for messages.
    pub(crate) name: String,
    pub(crate) wire: Wire,
    /// The recorded stream.
    pub(crate) stream: String,
    /// The expected content.
    pub(crate) expected: Value,
    /// The content according to the provider's own SDK.
    pub(crate) sdk: Value,
}

/// The wires with recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    Chat,
    Gemini,
    Responses,
}

impl Wire {
    pub(crate) const ALL: [Self; 4] = [Self::Anthropic, Self::Chat, Self::Gemini, Self::Responses];

    fn folder(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Chat => "chat",
            Self::Gemini => "gemini",
            Self::Responses => "responses",
        }
    }

    /// Returns the name of a model with this wire.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic/claude-sonnet-5",
            Self::Chat => "openai-chat/gpt-4o",
            Self::Gemini => "gemini/gemini-3.7-flash",
            Self::Responses => "openai/gpt-5.5",
        }
    }

    /// Returns an unknown event.
    pub(crate) fn news(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Responses => concat!(
                "event: news\ndata: {\"type\":\"news\",\"index\":\"7\",\"output_index\":[7],\"delta\":{\"text\":1},",
                "\"item\":\"x\",\"message\":7,\"content_block\":[],\"usage\":\"u\",\"response\":true,\"error\":{\"a\":1}}\n\n",
                "event: other_news\ndata: neither JSON nor anything else\n\n",
                "data: {\"type\":{\"is\":\"an object\"}}\n\ndata: [7]\n\n"
            ),
            Self::Chat => concat!(
                "data: {\"object\":\"news\",\"choices\":\"none\",\"usage\":[1],\"model\":7,\"error\":null}\n\n",
                "data: {\"object\":7,\"choices\":[1,null,\"x\"],\"x_groq\":\"g\",\"error\":\"\"}\n\ndata: 7\n\n"
            ),
            Self::Gemini => concat!(
                "data: {\"news\":true,\"candidates\":{\"a\":1},\"modelVersion\":[1],\"usageMetadata\":7}\n\n",
                "data: {\"candidates\":[7],\"promptFeedback\":\"none\",\"error\":{}}\n\ndata: 7\n\n"
            ),
        }
    }
}

/// Returns all recordings of a wire, by name.
pub(crate) fn all(wire: Wire) -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(wire.folder());
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut streams: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "sse")).collect();
    streams.sort();
    streams.iter().map(|path| read(wire, path)).collect()
}

/// Returns the recording with tool calls.
pub(crate) fn tools(wire: Wire) -> Recording {
    one(wire, if wire == Wire::Anthropic { "tool" } else { "tools" })
}

/// Returns one recording.
pub(crate) fn one(wire: Wire, name: &str) -> Recording {
    let whole = format!("{}/{name}", wire.folder());
    let found = all(wire).into_iter().find(|recording| recording.name == whole);
    found.unwrap_or_else(|| panic!("there is no recording {name}"))
}

fn read(wire: Wire, path: &Path) -> Recording {
    let json = |ending: &str| {
        let text = fs::read_to_string(path.with_extension(ending)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let name = path.file_stem().unwrap().to_str().unwrap();
    Recording {
        name: format!("{}/{name}", wire.folder()),
        wire,
        stream: fs::read_to_string(path).unwrap(),
        expected: json("json"),
        sdk: json("sdk.json"),
    }
}

impl Recording {
    /// Returns the events with their blank lines.
    pub(crate) fn events(&self) -> Vec<&str> {
        let blank = if self.stream.contains("\r\n") { "\r\n\r\n" } else { "\n\n" };
        self.stream.split_inclusive(blank).filter(|event| !event.trim().is_empty()).collect()
    }

    /// Returns the stream in chunks of this size.
    pub(crate) fn in_chunks(&self, size: usize) -> ScriptedReply {
        let pieces = self.stream.as_bytes().chunks(size);
        let body: Vec<u8> = pieces.flat_map(chunk).collect();
        ScriptedReply::open_stream().bytes(body).end()
    }

    /// Returns the stream in chunks of pseudo-random sizes.
    pub(crate) fn at_random(&self, seed: u64) -> ScriptedReply {
        let (chance, mut rest) = (Rng::new(seed), self.stream.as_bytes());
        let mut reply = ScriptedReply::open_stream();
        while !rest.is_empty() {
            let size = usize::try_from(chance.below(97)).unwrap() + 1;
            let (piece, behind) = rest.split_at(size.min(rest.len()));
            (reply, rest) = (reply.bytes(chunk(piece)), behind);
        }
        reply.end()
    }

    /// Returns whether the reply can be one document, where truncated arguments are only possible as text.
    pub(crate) fn has_whole(&self) -> bool {
        let cut =
            self.expected["calls"].as_array().unwrap().iter().any(|c| c["arguments"].is_null());
        !(cut && self.wire == Wire::Anthropic)
    }

    /// Returns the reply as one document.
    pub(crate) fn whole(&self) -> ScriptedReply {
        let data = self.events().into_iter().map(|event| {
            let lines = event.lines().filter_map(|line| line.strip_prefix("data: "));
            lines.collect::<String>()
        });
        let data: Vec<Value> = data
            .filter(|data| data != "[DONE]")
            .map(|data| serde_json::from_str(&data).unwrap())
            .collect();
        let body = match self.wire {
            Wire::Anthropic => anthropic(&data),
            Wire::Chat => chat(&data),
            Wire::Gemini => gemini(&data),
            Wire::Responses => data.last().unwrap()["response"].clone(),
        };
        ScriptedReply::with_length(200, &body.to_string())
    }
}

/// Joins the events to a message.
fn anthropic(events: &[Value]) -> Value {
    let mut message = Value::Null;
    for event in events {
        let index = event["index"].as_u64().map_or(0, |index| usize::try_from(index).unwrap());
        match event["type"].as_str().unwrap() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let block = &mut message["content"][index];
                for key in ["text", "thinking", "signature", "partial_json"] {
                    if let Some(more) = event["delta"][key].as_str() {
                        append(&mut block[key], more);
                    }
                }
            }
            "content_block_stop" => {
                let block = message["content"][index].as_object_mut().unwrap();
                if let Some(Value::String(input)) = block.remove("partial_json") {
                    let whole = if input.is_empty() { "{}" } else { &input };
                    block.insert("input".to_owned(), serde_json::from_str(whole).unwrap());
                }
            }
            "message_delta" => {
                merge(&mut message, &event["delta"]);
                merge(&mut message["usage"], &event["usage"]);
            }
            _ => {}
        }
    }
    message
}

/// Joins the chunks to a completion.
fn chat(chunks: &[Value]) -> Value {
    let mut whole = json!({"object": "chat.completion", "model": chunks[0]["model"]});
    let (mut message, mut finish) = (json!({"role": "assistant", "content": null}), Value::Null);
    let mut calls: Vec<Value> = Vec::new();
    for chunk in chunks {
        merge(&mut whole, &json!({"usage": chunk["usage"]}));
        let choice = &chunk["choices"][0];
        for key in ["content", "refusal"] {
            if let Some(text) = choice["delta"][key].as_str() {
                append(&mut message[key], text);
            }
        }
        for delta in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            if delta["id"].is_string() {
                let mut call = delta.clone();
                call.as_object_mut().unwrap().remove("index");
                calls.push(call);
            } else {
                let at = usize::try_from(delta["index"].as_u64().unwrap()).unwrap();
                let more = delta["function"]["arguments"].as_str().unwrap();
                append(&mut calls[at]["function"]["arguments"], more);
            }
        }
        if choice["finish_reason"].is_string() {
            finish = choice["finish_reason"].clone();
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    whole["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish}]);
    whole
}

/// Joins the chunks to a response.
fn gemini(chunks: &[Value]) -> Value {
    let mut whole = chunks.last().unwrap().clone();
    let parts =
        chunks.iter().filter_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array());
    // A blocked prompt has no candidate.
    if whole["candidates"].is_array() {
        whole["candidates"][0]["content"]["parts"] = parts.flatten().cloned().collect();
    }
    whole
}

fn append(text: &mut Value, more: &str) {
    *text = format!("{}{more}", text.as_str().unwrap_or_default()).into();
}

fn merge(into: &mut Value, from: &Value) {
    let into: &mut Map<String, Value> = into.as_object_mut().unwrap();
    for (key, value) in from.as_object().into_iter().flatten() {
        if !value.is_null() {
            into.insert(key.clone(), value.clone());
        }
    }
}
