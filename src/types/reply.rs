//! One complete reply of a model.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ToolCall, Usage};

/// A complete reply. It exists only once the provider's terminal event has arrived.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reply {
    /// The parts, in the order in which the model wrote them.
    pub parts: Arc<[ReplyPart]>,
    /// The reason why the model stopped.
    pub finish: ReplyFinish,
    /// The token usage of the call.
    pub usage: Usage,
    /// The model that answered, if the provider names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
}

/// One part of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyPart {
    /// Text for the user.
    Text(Arc<str>),
    /// A tool call.
    Call(ToolCall),
    /// A block that is specific to its provider.
    Opaque(OpaqueBlock),
}

/// A block that is sent back to its provider byte for byte: reasoning, a signature, an encrypted item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpaqueBlock {
    /// The API format of the block. Requests in another format leave it out.
    pub wire: Arc<str>,
    /// The block as it was received.
    pub json: Arc<str>,
}

/// The reason why a model stopped writing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub enum ReplyFinish {
    /// The model has finished.
    Stop,
    /// The model calls tools.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The provider paused a long turn, which continues when it is sent back.
    Pause,
    /// The model, or a filter before it, refused.
    Refused,
    /// The context window is full.
    ContextFull,
    /// A reason that this release doesn't know. It never counts as success.
    Other(Arc<str>),
}

impl ReplyFinish {
    /// Returns the name that users see, or the provider's own name for an unknown reason.
    pub fn name(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::Pause => "pause",
            Self::Refused => "refused",
            Self::ContextFull => "context_full",
            Self::Other(reason) => reason,
        }
    }
}

impl Reply {
    /// Returns a reply of text alone.
    pub fn text_only(text: &str, finish: ReplyFinish, usage: Usage) -> Self {
        Self { parts: [ReplyPart::Text(text.into())].into(), finish, usage, model: None }
    }

    /// Returns the tool calls in call order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            ReplyPart::Call(call) => Some(call),
            ReplyPart::Text(_) | ReplyPart::Opaque(_) => None,
        })
    }

    /// Returns whether the reply has blocks that are specific to its provider.
    pub fn has_opaque_blocks(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, ReplyPart::Opaque(_)))
    }

    /// Returns the reply without the blocks that are specific to its provider.
    #[must_use]
    pub fn without_opaque_blocks(&self) -> Self {
        let parts = self.parts.iter().filter(|part| !matches!(part, ReplyPart::Opaque(_)));
        Self { parts: parts.cloned().collect(), ..self.clone() }
    }

    /// Returns whether the model wants a tool to run.
    pub fn has_calls(&self) -> bool {
        self.calls().next().is_some()
    }

    /// Returns the text of the reply, its parts joined.
    pub fn text(&self) -> Arc<str> {
        let mut texts = self.parts.iter().filter_map(|part| match part {
            ReplyPart::Text(text) => Some(text),
            ReplyPart::Call(_) | ReplyPart::Opaque(_) => None,
        });
        match (texts.next(), texts.next()) {
            (None, _) => "".into(),
            (Some(only), None) => Arc::clone(only),
            (Some(first), Some(second)) => {
                let joined: String =
                    [first, second].into_iter().chain(texts).map(|text| &**text).collect();
                joined.into()
            }
        }
    }

    /// Returns whether there is any text other than white space.
    pub fn has_text(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, ReplyPart::Text(text) if !text.trim().is_empty()))
    }
}
