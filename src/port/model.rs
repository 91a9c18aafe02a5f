//! The model that answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::EffectContext;
use crate::machine::{CallPurpose, ConversationEntry};
use crate::model::{Fault, Reply, Tokens};

/// A model behind some wire format.
pub trait Model: Send {
    /// Writes the next request down. Runs on the driver's thread, does no I/O, and encodes only what is new.
    ///
    /// # Errors
    ///
    /// Fails when the request cannot be made at all, for want of a key say.
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault>;
}

/// A request that is ready to be sent.
pub trait ModelCall: Send {
    /// Sends the request and waits for the complete reply. What arrives before that is told to `sink`.
    ///
    /// # Errors
    ///
    /// Fails with what happened; a reply that is not complete is none. When the scope is cancelled, it returns soon, and
    /// nobody looks at what it returns.
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault>;
}

/// What a model is asked.
#[derive(Debug)]
pub struct ModelRequest<'a> {
    /// What the call is for.
    pub purpose: CallPurpose,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// The system prompt.
    pub system: &'a Arc<str>,
    /// The tools that the model may call; none when it is asked to sum up.
    pub tools: &'a Arc<[ToolSpec]>,
    /// The conversation, oldest first.
    pub entries: &'a [ConversationEntry],
    /// A last instruction that is no part of the conversation.
    pub instruction: Option<&'a str>,
    /// How much the reply may have; none leaves it to the provider.
    pub max_output: Option<Tokens>,
    /// The JSON Schema that the final answer has to satisfy.
    pub schema: Option<&'a Arc<Value>>,
}

/// A tool, as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: Arc<str>,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// The JSON Schema of its arguments.
    pub schema: Value,
}

/// Something that arrived before a reply was complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyDelta {
    /// The first byte of the reply.
    Started,
    /// Text for the user.
    Text(String),
    /// Text of the model's reasoning.
    Reasoning(String),
}
