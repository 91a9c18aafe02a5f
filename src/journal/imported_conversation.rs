//! Conversations of other programs, repaired so that every tool call has exactly one result.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;
use thiserror::Error;

use crate::model::{
    CallId, ConversationItem, MessageOrigin, OpaqueBlock, Reply, ReplyFinish, ReplyPart, ToolCall,
    ToolExchange, ToolResult, ToolStatus, Usage,
};

/// An imported conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedConversation {
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation; it begins with a message to the model.
    pub items: Vec<ConversationItem>,
    /// The repairs.
    pub repairs: ImportRepairs,
}

/// The repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportRepairs {
    /// Tool calls without a result, which got one that says so.
    pub unanswered: usize,
    /// Results of calls that were not made, or that had a result already; they are left out.
    pub unmatched_results: usize,
    /// Calls with an id that was used already; they got a new one.
    pub renamed: usize,
    /// Messages without known content; they are left out.
    pub dropped: usize,
    /// Whether the conversation did not begin with a message to the model.
    pub is_missing_start: bool,
}

/// Why a text is not a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConversationError {
    /// It is not JSON.
    #[error("line {line} is not JSON: {reason}")]
    Json {
        /// The line.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// It contains no messages.
    #[error("it has no messages")]
    Empty,
}

/// The result of a call whose result was not stored.
const UNANSWERED: &str = "Outcome unknown: the conversation that this comes from has no answer to this call. It may \
     have completed, partially completed, or not run at all.";

const MISSING_START: &str = "[SYSTEM] The beginning of this conversation is missing.";

impl ImportedConversation {
    /// Parses the messages of a chat API: a JSON array, an object with `messages`, or one message per line.
    ///
    /// Both common forms are accepted: `tool_calls` with messages of the role `tool`, and content blocks of the types
    /// `tool_use` and `tool_result`.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON, or has no messages.
    pub fn parse(text: &str) -> Result<Self, ConversationError> {
        let mut mender = ConversationBuilder::default();
        for message in parse_messages(text)? {
            mender.add_message(&message);
        }
        mender.close_reply();
        let ConversationBuilder { conversation: mut history, .. } = mender;
        if !matches!(history.items.first(), Some(ConversationItem::User(_)) | None) {
            history.repairs.is_missing_start = true;
            history.items.insert(0, ConversationItem::user(MessageOrigin::System, MISSING_START));
        }
        if history.items.is_empty() { Err(ConversationError::Empty) } else { Ok(history) }
    }
}

fn parse_messages(text: &str) -> Result<Vec<Value>, ConversationError> {
    let whole = match serde_json::from_str(text) {
        Ok(Value::Array(messages)) => return Ok(messages),
        Ok(Value::Object(mut fields)) => match fields.remove("messages") {
            Some(Value::Array(messages)) => return Ok(messages),
            _ => Value::Object(fields),
        },
        Ok(other) => other,
        Err(_) => Value::Null,
    };
    if whole.is_object() {
        return Ok(vec![whole]);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| ConversationError::Json {
                line: index + 1,
                reason: error.to_string(),
            })
        })
        .collect()
}

/// Builds a conversation. A reply with calls stays open until its results are complete, or another message follows.
#[derive(Default)]
struct ConversationBuilder {
    conversation: ImportedConversation,
    open_reply: Option<Reply>,
    results: Vec<ToolResult>,
    ids: HashSet<String>,
}

impl ConversationBuilder {
    fn add_message(&mut self, message: &Value) {
        let content = &message["content"];
        match message["role"].as_str() {
            Some("system" | "developer") => self.conversation.system = Some(content_text(content)),
            Some("user") => self.add_user(content),
            Some("assistant" | "model") => self.add_assistant(message),
            Some("tool" | "function") => {
                self.add_result(
                    message["tool_call_id"].as_str(),
                    content_text(content),
                    ToolStatus::Ok,
                );
            }
            Some(_) | None => self.conversation.repairs.dropped += 1,
        }
    }

    fn add_user(&mut self, content: &Value) {
        for block in content.as_array().into_iter().flatten() {
            if block["type"] == "tool_result" {
                let failed = block["is_error"].as_bool() == Some(true);
                let status = if failed { ToolStatus::Failed } else { ToolStatus::Ok };
                self.add_result(
                    block["tool_use_id"].as_str(),
                    content_text(&block["content"]),
                    status,
                );
            }
        }
        let text = content_text(content);
        if !text.trim().is_empty() {
            self.close_reply();
            self.conversation.items.push(ConversationItem::user(MessageOrigin::Task, text));
        }
    }

    fn add_assistant(&mut self, message: &Value) {
        self.close_reply();
        let mut parts = Vec::new();
        match &message["content"] {
            Value::Array(blocks) => {
                parts.extend(blocks.iter().filter_map(|block| self.read_block(block)));
            }
            content => parts.extend(text_part(&content_text(content))),
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            if let (Some(id), Some(name)) = (call["id"].as_str(), function["name"].as_str()) {
                let arguments = match &function["arguments"] {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                parts.push(self.add_call(id, name, &arguments));
            }
        }
        if parts.is_empty() {
            self.conversation.repairs.dropped += 1;
            return;
        }
        let mut reply = Reply {
            parts: parts.into(),
            finish: ReplyFinish::Stop,
            usage: Usage { is_estimated: true, ..Usage::default() },
            model: None,
        };
        if reply.has_calls() {
            reply.finish = ReplyFinish::ToolCalls;
            self.open_reply = Some(reply);
        } else if reply.has_text() {
            self.conversation.items.push(ConversationItem::Assistant(reply));
        } else {
            self.conversation.repairs.dropped += 1;
        }
    }

    fn read_block(&mut self, block: &Value) -> Option<ReplyPart> {
        match block["type"].as_str() {
            Some("text" | "output_text") => text_part(block["text"].as_str()?),
            Some("tool_use") => {
                let (id, name) = (block["id"].as_str()?, block["name"].as_str()?);
                Some(self.add_call(id, name, &block["input"].to_string()))
            }
            // Reasoning goes back to the model that produced it, byte for byte; other models do not get it.
            Some("thinking" | "redacted_thinking") => Some(ReplyPart::Opaque(OpaqueBlock {
                wire: "anthropic".into(),
                json: block.to_string().into(),
            })),
            Some(_) | None => None,
        }
    }

    /// Returns a call with a unique id.
    fn add_call(&mut self, id: &str, name: &str, arguments: &str) -> ReplyPart {
        let mut unique = id.to_owned();
        while !self.ids.insert(unique.clone()) {
            unique.push('~');
        }
        self.conversation.repairs.renamed += usize::from(unique != id);
        ReplyPart::Call(ToolCall::new(unique.as_str().into(), name, arguments))
    }

    /// A result belongs to a call of the reply right before it.
    fn add_result(&mut self, id: Option<&str>, text: String, status: ToolStatus) {
        let fits = |call: &&ToolCall| {
            let is_named = id.is_some_and(|id| call.id.as_str().trim_end_matches('~') == id);
            is_named && !self.results.iter().any(|answer| answer.call == call.id)
        };
        let call = self.open_reply.as_ref().and_then(|reply| reply.calls().find(fits));
        match call.map(|call| call.id.clone()) {
            Some(id) => self.results.push(ToolResult::new(id, status, text)),
            None => self.conversation.repairs.unmatched_results += 1,
        }
    }

    /// Closes the open reply: missing results are filled in.
    fn close_reply(&mut self) {
        let Some(reply) = self.open_reply.take() else { return };
        let mut answers = std::mem::take(&mut self.results);
        let mut missing = 0;
        let mut answer = |id: &CallId| {
            let known = answers.iter().position(|answer| answer.call == *id);
            if let Some(index) = known {
                return answers.swap_remove(index);
            }
            missing += 1;
            ToolResult::new(id.clone(), ToolStatus::InDoubt, UNANSWERED)
        };
        let results: Vec<ToolResult> = reply.calls().map(|call| answer(&call.id)).collect();
        self.conversation.repairs.unanswered += missing;
        // Cannot fail: there is one result for each call.
        if let Ok(exchange) = ToolExchange::new(reply, results) {
            self.conversation.items.push(ConversationItem::Exchange(exchange));
        }
    }
}

fn text_part(text: &str) -> Option<ReplyPart> {
    (!text.is_empty()).then(|| ReplyPart::Text(text.into()))
}

/// Returns the text of a content: a string, or blocks of text.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| match block {
                Value::String(text) => Some(text.as_str()),
                block => block["text"].as_str(),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

impl fmt::Display for ImportRepairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            unanswered,
            unmatched_results: orphans,
            renamed,
            dropped,
            is_missing_start: headless,
        } = *self;
        let counts = [
            (unanswered, "calls without a result"),
            (orphans, "results without a call"),
            (renamed, "calls with a repeated id"),
            (dropped, "messages without content"),
            (usize::from(headless), "missing beginning"),
        ];
        let parts = counts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        if parts.is_empty() { f.write_str("nothing") } else { f.write_str(&parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(messages: &Value) -> ImportedConversation {
        ImportedConversation::parse(&messages.to_string()).unwrap()
    }

    fn summary(history: &ImportedConversation) -> Vec<String> {
        let item = |item: &ConversationItem| match item {
            ConversationItem::User(message) => format!("user: {}", message.text),
            ConversationItem::Assistant(reply) => format!("assistant: {}", reply.text()),
            ConversationItem::Exchange(exchange) => {
                let results = exchange.results().iter();
                let results = results.map(|r| format!("{}={:?}", r.call, r.status));
                results.collect::<Vec<_>>().join(" ")
            }
        };
        history.items.iter().map(item).collect()
    }

    #[test]
    fn a_conversation_in_either_spelling_is_the_same_one() {
        let call =
            serde_json::json!({ "id": "a", "function": { "name": "ls", "arguments": "{}" } });
        let one = read(&serde_json::json!([
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": "go" },
            { "role": "assistant", "content": "well", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "a", "content": "it" },
            { "role": "assistant", "content": "done" },
        ]));
        let other = read(&serde_json::json!({ "messages": [
            { "role": "system", "content": [{ "type": "text", "text": "be brief" }] },
            { "role": "user", "content": [{ "type": "text", "text": "go" }] },
            { "role": "assistant", "content": [
                { "type": "text", "text": "well" },
                { "type": "tool_use", "id": "a", "name": "ls", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "a", "content": [{ "type": "text", "text": "it" }] },
            ] },
            { "role": "assistant", "content": [{ "type": "text", "text": "done" }] },
        ] }));
        assert_eq!(one, other);
        assert_eq!(summary(&one), ["user: go", "a=Ok", "assistant: done"]);
        assert_eq!(one.repairs, ImportRepairs::default());
    }

    #[test]
    fn calls_without_answers_are_answered_and_answers_without_calls_are_left_out() {
        let history = read(&serde_json::json!([
            { "role": "user", "content": "go" },
            { "role": "assistant", "tool_calls": [
                { "id": "a", "function": { "name": "ls", "arguments": "{}" } },
                { "id": "b", "function": { "name": "ls", "arguments": "{}" } },
            ] },
            { "role": "tool", "tool_call_id": "b", "content": "it" },
            { "role": "tool", "tool_call_id": "b", "content": "again" },
            { "role": "user", "content": "and?" },
            { "role": "tool", "tool_call_id": "a", "content": "too late" },
            { "role": "assistant", "tool_calls": [
                { "id": "a", "function": { "name": "ls", "arguments": "{}" } },
            ] },
        ]));
        assert_eq!(summary(&history), ["user: go", "a=InDoubt b=Ok", "user: and?", "a~=InDoubt"]);
        let repairs = ImportRepairs {
            unanswered: 2,
            unmatched_results: 2,
            renamed: 1,
            ..ImportRepairs::default()
        };
        assert_eq!(history.repairs, repairs);
        assert_eq!(
            repairs.to_string(),
            "2 calls without a result, 2 results without a call, 1 calls with a repeated id"
        );
    }

    #[test]
    fn a_conversation_begins_with_a_message_to_the_model() {
        let history = read(&serde_json::json!([{ "role": "assistant", "content": "hello" }]));
        assert_eq!(summary(&history)[0], format!("user: {MISSING_START}"));
        assert!(history.repairs.is_missing_start);
    }

    #[test]
    fn messages_may_stand_on_a_line_each_and_errors_name_theirs() {
        let lines =
            "{\"role\":\"user\",\"content\":\"a\"}\n\n{\"role\":\"assistant\",\"content\":\"b\"}\n";
        assert_eq!(
            summary(&ImportedConversation::parse(lines).unwrap()),
            ["user: a", "assistant: b"]
        );
        let one = "{\"role\":\"user\",\"content\":\"a\"}";
        assert_eq!(summary(&ImportedConversation::parse(one).unwrap()), ["user: a"]);
        let error =
            ImportedConversation::parse("{\"role\":\"user\",\"content\":\"a\"}\n{").unwrap_err();
        assert!(error.to_string().starts_with("line 2 is not JSON"), "{error}");
        for nothing in ["", "[]", "[1]", "{}"] {
            assert_eq!(
                ImportedConversation::parse(nothing),
                Err(ConversationError::Empty),
                "{nothing}"
            );
        }
    }

    #[test]
    fn whatever_the_text_every_call_has_one_answer() {
        use proptest::prelude::*;
        let id = || prop::sample::select(vec!["a", "b", "c"]);
        let message = prop_oneof![
            Just(serde_json::json!({ "role": "user", "content": "x" })),
            prop::collection::vec(id(), 0..4).prop_map(|ids| serde_json::json!({
                "role": "assistant",
                "tool_calls": ids.iter().map(|id| serde_json::json!({
                    "id": id, "function": { "name": "t", "arguments": "{}" }
                })).collect::<Vec<_>>(),
            })),
            id().prop_map(
                |id| serde_json::json!({ "role": "tool", "tool_call_id": id, "content": "r" })
            ),
        ];
        proptest!(|(messages in prop::collection::vec(message, 0..12))| {
            if let Ok(history) = ImportedConversation::parse(&Value::Array(messages).to_string()) {
                let mut ids = HashSet::new();
                for item in &history.items {
                    if let ConversationItem::Exchange(exchange) = item {
                        let calls: Vec<_> = exchange.reply().calls().map(|call| &call.id).collect();
                        let answers: Vec<_> = exchange.results().iter().map(|r| &r.call).collect();
                        prop_assert_eq!(&calls, &answers);
                        prop_assert!(calls.into_iter().all(|id| ids.insert(id.clone())));
                    }
                }
                prop_assert!(matches!(history.items[0], ConversationItem::User(_)));
            }
        });
    }
}
