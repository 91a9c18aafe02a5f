//! The items of a conversation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Image, Reply, ToolResult, word_enum};

/// One entry of a conversation. A tool call never stands without its answer: both are in one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationItem {
    /// A message to the model.
    User(UserMessage),
    /// A reply without tool calls.
    Assistant(Reply),
    /// A reply with tool calls, and the answer to each.
    Exchange(ToolExchange),
}

/// A message to the model, with its origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UserMessage {
    /// The origin of the message.
    pub origin: MessageOrigin,
    /// The text, as the model reads it.
    pub text: Arc<str>,
    /// The images that the text mentions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

impl UserMessage {
    /// Returns a message without images.
    pub fn new(origin: MessageOrigin, text: impl Into<Arc<str>>) -> Self {
        Self { origin, text: text.into(), images: Vec::new() }
    }
}

word_enum! {
    /// The origin of a message to the model.
    pub enum MessageOrigin {
        /// The user's task, or the prompt of a resumed session.
        Task = "task",
        /// The user, while the run was under way.
        Steering = "steering",
        /// A message of the user that waits until the run would have ended.
        FollowUp = "follow_up",
        /// The machine: the reason for closing, a request to continue a reply, a warning about repeated calls.
        System = "system",
        /// A hook, a quality gate or the check of the answer's schema.
        Check = "check",
        /// A summary that replaces compacted entries.
        Summary = "summary",
    }
}

impl MessageOrigin {
    /// Returns whether the message is from the user. No compaction replaces these.
    pub fn is_pinned(self) -> bool {
        match self {
            Self::Task | Self::Steering | Self::FollowUp => true,
            Self::System | Self::Check | Self::Summary => false,
        }
    }
}

/// A reply with tool calls, each answered exactly once and in call order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawToolExchange")]
pub struct ToolExchange {
    reply: Reply,
    results: Arc<[ToolResult]>,
}

/// The results do not match the tool calls of the reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{results} results do not answer the {calls} tool calls of a reply one by one")]
pub struct ResultMismatch {
    calls: usize,
    results: usize,
}

#[derive(Deserialize)]
struct RawToolExchange {
    reply: Reply,
    results: Arc<[ToolResult]>,
}

impl ToolExchange {
    /// Joins a reply with its answers.
    ///
    /// # Errors
    ///
    /// Fails unless there is exactly one result for each call, in call order.
    pub fn new(
        reply: Reply,
        results: impl Into<Arc<[ToolResult]>>,
    ) -> Result<Self, ResultMismatch> {
        let results = results.into();
        if reply.has_calls()
            && reply.calls().map(|call| &call.id).eq(results.iter().map(|result| &result.call))
        {
            Ok(Self { reply, results })
        } else {
            Err(ResultMismatch { calls: reply.calls().count(), results: results.len() })
        }
    }

    /// Returns the exchange without the blocks that are specific to the reply's provider.
    #[must_use]
    pub fn without_opaque_blocks(&self) -> Self {
        Self { reply: self.reply.without_opaque_blocks(), results: Arc::clone(&self.results) }
    }

    /// Returns the reply.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Returns the answers, one for each call of the reply, in call order.
    pub fn results(&self) -> &[ToolResult] {
        &self.results
    }
}

impl TryFrom<RawToolExchange> for ToolExchange {
    type Error = ResultMismatch;

    fn try_from(raw: RawToolExchange) -> Result<Self, ResultMismatch> {
        Self::new(raw.reply, raw.results)
    }
}

impl ConversationItem {
    /// Returns a message to the model.
    pub fn user(origin: MessageOrigin, text: impl Into<Arc<str>>) -> Self {
        Self::User(UserMessage::new(origin, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CallId, ReplyFinish, ReplyPart, ToolCall, ToolStatus, Usage};

    fn reply(ids: &[&str]) -> Reply {
        let call = |id: &&str| ReplyPart::Call(ToolCall::new((*id).into(), "grep", "{}"));
        Reply {
            parts: ids.iter().map(call).collect(),
            finish: ReplyFinish::ToolCalls,
            usage: Usage::default(),
            model: None,
        }
    }

    fn results(ids: &[&str]) -> Vec<ToolResult> {
        ids.iter().map(|id| ToolResult::new(CallId::from(*id), ToolStatus::Ok, "")).collect()
    }

    #[test]
    fn an_exchange_answers_each_call_once_and_in_order() {
        assert!(ToolExchange::new(reply(&["a", "b"]), results(&["a", "b"])).is_ok());
        for wrong in [&["a"][..], &["b", "a"], &["a", "b", "c"], &["a", "x"], &[]] {
            assert!(ToolExchange::new(reply(&["a", "b"]), results(wrong)).is_err(), "{wrong:?}");
        }
        assert!(ToolExchange::new(reply(&[]), results(&[])).is_err());
    }

    #[test]
    fn a_stored_exchange_with_a_lost_result_is_not_read_back() {
        let exchange = ToolExchange::new(reply(&["a"]), results(&["a"])).unwrap();
        let mut json = serde_json::to_value(&exchange).unwrap();
        assert_eq!(serde_json::from_value::<ToolExchange>(json.clone()).unwrap(), exchange);
        json["results"] = serde_json::json!([]);
        let error = serde_json::from_value::<ToolExchange>(json).unwrap_err();
        assert!(error.to_string().contains("0 results do not answer the 1 tool calls"));
    }
}
