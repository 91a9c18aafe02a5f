//! The interface of API formats. Sending requests and reading responses is common to all formats.

use std::borrow::Cow;
use std::fmt::{Debug, Display};
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::decode::{DecodedReply, DeltaBuffer, TextField};
use super::encode::MessageWriter;
use super::schema;
use crate::net::sse::{MAX_EVENT_BYTES, SseEvent};
use crate::net::{HeaderName, header};
use crate::port::ToolSpec;
use crate::types::{
    ConversationItem, Effort, Fault, FaultKind, Image, OutputField, Reply, ReplyPart, Tokens,
    ToolCall, ToolResult,
};

/// The result of a step of a model call.
pub(super) type Result<T = (), E = Fault> = std::result::Result<T, E>;

/// An API format. A new format is a folder with a `FORMAT`, and its module in `llm/mod.rs`.
#[derive(Debug)]
pub(super) struct ApiFormat {
    /// The name in the documentation.
    pub(super) name: &'static str,
    /// Returns the path of a base URL, given the user's path and the provider's default.
    pub(super) base_path: fn(path: &str, default: &str) -> String,
    /// Returns the path of a request below the base URL.
    pub(super) path: fn(&WireSetup) -> String,
    /// Returns the wire for a model.
    pub(super) wire: fn(WireSetup) -> Arc<dyn Wire>,
}

/// Returns the default for an empty path.
pub(super) fn path_or_default(path: &str, default: &str) -> String {
    if path.is_empty() { default } else { path }.to_owned()
}

/// A cloud that serves models of other makers, with its own differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    /// Amazon Bedrock.
    Bedrock,
    /// Google Vertex AI.
    Vertex,
}

/// The framing of events in a streamed reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFraming {
    /// Server-sent events.
    Sse,
    /// Amazon's event stream; server-sent events are accepted, too.
    Amazon,
}

/// The parameters of a wire. A journal stores them, but for those that follow from the id.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct WireSetup {
    /// `provider/model`, which identifies blocks that only this model can read.
    #[serde(rename = "model")]
    pub(super) id: Arc<str>,
    /// The name of the provider.
    #[serde(skip)]
    pub(super) provider: &'static str,
    /// The cloud that serves the model in place of its maker.
    #[serde(skip)]
    pub(super) cloud: Option<Cloud>,
    /// The host that serves the model.
    pub(super) host: String,
    #[serde(skip)]
    pub(super) model: String,
    #[serde(rename = "stream")]
    pub(super) is_streaming: bool,
    /// Whether to use the provider's prompt cache.
    #[serde(rename = "cache")]
    pub(super) uses_cache: bool,
    /// A text that identifies the requests of one session in the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cache_key: Option<String>,
    /// The output limit of the model; `None` if the model table does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_output: Option<Tokens>,
    /// The field for the output limit with Chat Completions; `None` for the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_field: Option<OutputField>,
    /// Whether the model accepts images.
    #[serde(rename = "images")]
    pub(super) takes_images: bool,
    /// Additional fields for the body of each request.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub(super) options: Arc<Map<String, Value>>,
    /// The reasoning effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) effort: Option<Effort>,
    /// The provider's word for the effort; `None` if the model table does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) effort_word: Option<String>,
}

fn is_empty(options: &Map<String, Value>) -> bool {
    options.is_empty()
}

impl WireSetup {
    /// Returns the provider's word for the effort; `highest` for the highest one of a model with unknown efforts.
    pub(super) fn word_of<'a>(&'a self, effort: Effort, highest: &'a str) -> &'a str {
        match (&self.effort_word, effort) {
            (Some(word), _) => word,
            (None, Effort::Max) => highest,
            (None, effort) => effort.as_str(),
        }
    }

    /// Adds the user's fields to the body of a request.
    pub(super) fn add_options(&self, body: &mut Value) {
        if let Value::Object(body) = body {
            merge_fields(body, &self.options);
        }
    }
}

/// Merges fields into an object: objects are merged, lists are appended, and other values are replaced.
pub(super) fn merge_fields(object: &mut Map<String, Value>, fields: &Map<String, Value>) {
    for (name, value) in fields {
        match (object.get_mut(name), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge_fields(below, above),
            (Some(Value::Array(items)), Value::Array(more)) => {
                let new: Vec<Value> =
                    more.iter().filter(|item| !items.contains(item)).cloned().collect();
                items.extend(new);
            }
            _ => {
                object.insert(name.clone(), value.clone());
            }
        }
    }
}

/// An API format for one model: it encodes requests, and creates readers for replies.
pub(super) trait Wire: Encode + Send + Sync {
    /// Returns the request headers that are specific to this format.
    fn headers(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Returns the header for a key from a variable, and the text before the key.
    fn key_header(&self, _variable: &str) -> (HeaderName, &'static str) {
        (header::AUTHORIZATION, "Bearer ")
    }

    /// Returns the framing of events in a streamed reply.
    fn framing(&self) -> StreamFraming {
        StreamFraming::Sse
    }

    /// Returns the maximum length of a server-sent event, in bytes.
    fn max_event_bytes(&self) -> usize {
        MAX_EVENT_BYTES
    }

    /// Returns a reader for a reply.
    fn reader(&self) -> Box<dyn ReplyReader>;
}

/// Encodes requests.
pub(super) trait Encode {
    /// Writes everything before the conversation.
    fn encode_head(&self, frame: &RequestFrame<'_>, out: &mut Vec<u8>);

    /// Writes an entry of the conversation.
    fn encode_item(&self, item: &ConversationItem, writer: &mut MessageWriter<'_>) {
        match item {
            ConversationItem::User(message) if message.images.is_empty() => {
                self.encode_user(&message.text, writer);
            }
            ConversationItem::User(message) if self.takes_images() => {
                self.encode_images(&message.text, &message.images, writer);
            }
            ConversationItem::User(message) => {
                self.encode_user(&Image::omit_all(&message.text, &message.images), writer);
            }
            ConversationItem::Assistant(reply) => self.encode_reply(reply, writer),
            ConversationItem::Exchange(exchange) => {
                self.encode_reply(exchange.reply(), writer);
                for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                    if result.images.is_empty() || self.takes_images() {
                        self.encode_result(call, result, writer);
                    } else {
                        let text = Image::omit_all(&result.text, &result.images);
                        self.encode_result(call, &ToolResult { text, ..result.clone() }, writer);
                    }
                }
                if !self.has_images_in_results() && self.takes_images() {
                    self.encode_images_of_results(exchange.results(), writer);
                }
            }
        }
    }

    /// Writes the images of tool results as a user message.
    fn encode_images_of_results(&self, results: &[ToolResult], writer: &mut MessageWriter<'_>) {
        let images: Vec<Image> =
            results.iter().flat_map(|result| &result.images).cloned().collect();
        if !images.is_empty() {
            let names: Vec<String> = images.iter().map(Image::placeholder).collect();
            let text = format!("The images of the tool results: {}", names.join(" "));
            self.encode_images(&text, &images, writer);
        }
    }

    /// Writes a user message.
    fn encode_user(&self, text: &str, writer: &mut MessageWriter<'_>);

    /// Writes a user message with images.
    fn encode_images(&self, text: &str, images: &[Image], writer: &mut MessageWriter<'_>);

    /// Returns whether the model accepts images.
    fn takes_images(&self) -> bool;

    /// Returns whether tool results can contain images. Otherwise the images follow in a user message.
    fn has_images_in_results(&self) -> bool {
        false
    }

    /// Writes a reply of the model.
    fn encode_reply(&self, reply: &Reply, writer: &mut MessageWriter<'_>);

    /// Writes the result of a tool call.
    fn encode_result(&self, call: &ToolCall, result: &ToolResult, writer: &mut MessageWriter<'_>);

    /// Writes everything after the conversation.
    fn encode_tail(&self, frame: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>);

    /// Returns whether a request for a conversation, newest entry first, may ask the model to think.
    fn can_think(&self, _newest_first: &mut dyn Iterator<Item = &ConversationItem>) -> bool {
        true
    }

    /// Returns whether a request must define tools if its conversation has tool calls, even if no tool may be called.
    fn needs_tool_definitions(&self) -> bool {
        false
    }

    /// Returns whether the end of the conversation gets a mark for the provider's cache.
    fn has_cache_marks(&self) -> bool {
        false
    }
}

/// The parts of a request besides the conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestFrame<'a> {
    /// The system prompt.
    pub(super) system: &'a str,
    pub(super) tools: &'a [ToolSpec],
    pub(super) tool_choice: ToolChoice,
    /// Whether the request may ask the model to think; see [`Encode::can_think`].
    pub(super) can_think: bool,
    /// The JSON Schema of the final answer.
    pub(super) schema: Option<&'a Value>,
}

impl RequestFrame<'_> {
    /// Returns the system prompt; `None` if it is blank. It describes the schema, unless the request has a field for
    /// that.
    pub(super) fn system_prompt(&self, has_schema_field: bool) -> Option<String> {
        let mut system = self.system.trim_end().to_owned();
        if let Some(schema) = self.schema.filter(|_| !has_schema_field) {
            system.push_str(&schema::schema_prompt(schema));
        }
        (!system.trim().is_empty()).then_some(system)
    }

    /// Returns the definitions of the tools; `None` without tools.
    pub(super) fn tool_definitions(&self, define: impl Fn(&ToolSpec) -> Value) -> Option<Value> {
        (!self.tools.is_empty()).then(|| self.tools.iter().map(define).collect())
    }
}

/// Whether the model may call tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ToolChoice {
    #[default]
    Auto,
    /// The tools are defined only because the conversation contains calls of them.
    Disabled,
}

/// Reads a reply, streamed or as one document.
pub(super) trait ReplyReader: Send {
    /// Reads the next event of a stream.
    fn push(&mut self, event: SseEvent<'_>, deltas: &mut DeltaBuffer) -> Result;

    /// Reads a reply that is a single JSON document.
    fn read_document(&mut self, body: &str) -> Result;

    /// Returns whether the terminal event was read.
    fn is_complete(&self) -> bool;

    /// Returns the reply, if it is complete.
    fn finish(self: Box<Self>) -> Result<DecodedReply>;
}

/// Reads the next event of a stream, after joining halves of surrogate pairs.
pub(super) fn push_event(
    reader: &mut dyn ReplyReader,
    event: SseEvent<'_>,
    deltas: &mut DeltaBuffer,
) -> Result {
    let data = deltas.surrogates.join(event.data);
    reader.push(SseEvent { data: &data, ..event }, deltas)
}

/// Returns the parts of a reply that a request may contain: text that is not blank, calls, and blocks of this wire.
pub(super) fn sendable_parts<'a>(reply: &'a Reply, wire_id: &str) -> Vec<&'a ReplyPart> {
    let is_sendable = |part: &&ReplyPart| match part {
        ReplyPart::Text(text) => !text.trim().is_empty(),
        ReplyPart::Call(_) => true,
        ReplyPart::Opaque(opaque) => *opaque.wire == *wire_id,
    };
    reply.parts.iter().filter(is_sendable).collect()
}

/// Returns the type of an event: the `type` in its data, or else its name. Only events of this API must be JSON; their
/// name is one for which `is_own` is true, or is missing.
pub(super) fn event_kind(event: SseEvent<'_>, is_own: bool) -> Result<Option<Cow<'_, str>>> {
    let is_foreign = !is_own && !["", "message"].contains(&event.name);
    match json_type(event.data) {
        Err(_) if is_foreign => Ok(None),
        Ok(None) if is_own && event.data.trim_start().starts_with('{') => {
            Ok(Some(event.name.into()))
        }
        kind => kind,
    }
}

/// Returns the `type` of a JSON object, without decoding the rest; `None` without one, or for other JSON.
pub(super) fn json_type(json: &str) -> Result<Option<Cow<'_, str>>> {
    #[derive(Deserialize)]
    struct TypeField<'a> {
        #[serde(rename = "type", borrow, default)]
        kind: TextField<'a>,
    }
    match json.trim_start().chars().next() {
        Some('{') => Ok(parse_json::<TypeField<'_>>(json)?.kind.0.map(|kind| kind.0)),
        Some(_) => parse_json(json).map(|IgnoredAny| None),
        None => Ok(None),
    }
}

/// Parses JSON of a reply. JSON that ends too early means a truncated reply.
pub(super) fn parse_json<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| json_fault(&error))
}

/// Returns the fault of a stream that ended before its terminal event.
pub(super) fn truncated_fault() -> Fault {
    Fault::new(FaultKind::Truncated, "the reply ended before its terminal event")
}

/// Returns the fault of a reply that violates its protocol.
pub(super) fn protocol_fault(cause: impl Display) -> Fault {
    Fault::new(FaultKind::Protocol, format!("the reply violates its protocol: {cause}"))
}

/// Returns the fault of invalid JSON.
pub(super) fn json_fault(error: &serde_json::Error) -> Fault {
    if error.is_eof() { truncated_fault() } else { protocol_fault(error) }
}
