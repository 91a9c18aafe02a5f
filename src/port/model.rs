//! The model.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::EffectContext;
use crate::machine::{CallPurpose, ConversationEntry};
use crate::types::{Fault, Reply, Sha256Digest, Tokens};

/// A model behind an API format.
pub trait Model: Send {
    /// Encodes the next request. Runs on the driver's thread, does no I/O, and encodes only new entries.
    ///
    /// # Errors
    ///
    /// Fails if the request can't be made, for example without an API key.
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault>;

    /// Returns the settings that the requests depend on besides their content, to encode the requests again later. Null
    /// for a model that sends no requests.
    fn request_settings(&self) -> Value {
        Value::Null
    }
}

/// A request that is ready to be sent.
pub trait ModelCall: Send {
    /// Sends the request and waits for the complete reply. Passes the parts that arrive before that to `sink`.
    ///
    /// # Errors
    ///
    /// Fails if there is no complete reply. After cancellation, it returns soon, and the result is ignored.
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault>;

    /// Returns the digest of the request; `None` if no request is sent.
    fn request_digest(&self) -> Option<RequestDigest> {
        None
    }
}

/// The digest of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestDigest {
    /// The SHA-256 of the body.
    pub sha256: Sha256Digest,
    /// The length of the body in bytes.
    pub bytes: u64,
    /// Whether the request was changed by something that is not stored: a hook, or the budget of a batch.
    #[serde(default, rename = "altered", skip_serializing_if = "std::ops::Not::not")]
    pub is_altered: bool,
}

/// A request to a model.
#[derive(Debug)]
pub struct ModelRequest<'a> {
    /// The index of the model among the models of the run. Most runs have one model.
    pub model: u32,
    /// The purpose of the call.
    pub purpose: CallPurpose,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// The system prompt.
    pub system: &'a Arc<str>,
    /// The tools that the model may call. Empty for summaries.
    pub tools: &'a Arc<[ToolSpec]>,
    /// The conversation, oldest first.
    pub entries: &'a [ConversationEntry],
    /// The upper bound of the request's size.
    pub input_bound: Tokens,
    /// A last instruction that isn't part of the conversation.
    pub instruction: Option<&'a str>,
    /// The limit of the reply, or `None` to leave it to the provider.
    pub max_output: Option<Tokens>,
    /// The JSON Schema of the final answer.
    pub schema: Option<&'a Arc<Value>>,
}

/// The description of a tool for a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name of the tool.
    pub name: Arc<str>,
    /// The description of the tool's effect.
    pub description: Arc<str>,
    /// The JSON Schema of its arguments.
    pub schema: Value,
}

impl ToolSpec {
    /// Returns the bytes of the tool in a request, without the overhead of the request's format.
    pub fn request_bytes(&self) -> u64 {
        (self.name.len() + self.description.len() + self.schema.to_string().len()) as u64
    }
}

/// A part of a reply that isn't complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyDelta {
    /// The first byte of the reply.
    Started,
    /// Text for the user.
    Text(String),
    /// Text of the model's reasoning.
    Reasoning(String),
    /// A part of a tool call, of this many bytes.
    Call(usize),
}
