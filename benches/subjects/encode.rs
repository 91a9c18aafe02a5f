//! A conversation on a wire: each step adds an exchange with a result of two thousand bytes.

use std::sync::Arc;

use architect::llm::model_table::ModelTable;
use architect::llm::{ModelConnectionSettings, ModelSpec, connect};
use architect::machine::{CallPurpose, ConversationEntry, EntryId};
use architect::port::{Model, ModelRequest, ToolSpec};
use architect::types::{
    ConversationItem, MessageOrigin, Reply, ReplyFinish, ReplyPart, ToolCall, ToolExchange,
    ToolResult, ToolStatus, Usage,
};

/// One model of each wire format.
pub(crate) const MODELS: [&str; 4] =
    ["anthropic/claude-opus-5", "openai-chat/gpt-4o", "openai/gpt-5.5", "gemini/gemini-3.7-flash"];

/// A model with a conversation that was sent once.
pub(crate) struct SentConversation {
    model: Box<dyn Model>,
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    entries: Vec<ConversationEntry>,
}

/// Returns an exchange; ids of calls are never the same twice.
pub(crate) fn exchange(number: u64) -> ConversationEntry {
    let id = format!("call_{number}");
    let call = ToolCall::new(id.as_str().into(), "read_file", r#"{"path":"src/lib.rs"}"#);
    let text = "fn main() { println!(\"hello\"); }\n".repeat(60);
    let result = ToolResult::new(call.id.clone(), ToolStatus::Ok, text);
    let reply = Reply {
        parts: [ReplyPart::Text("Let me look.".into()), ReplyPart::Call(call)].into(),
        finish: ReplyFinish::ToolCalls,
        usage: Usage::default(),
        model: None,
    };
    let item = ConversationItem::Exchange(ToolExchange::new(reply, vec![result]).unwrap());
    ConversationEntry { id: EntryId(number), item }
}

impl SentConversation {
    /// Returns a conversation with this number of entries.
    pub(crate) fn new(model: &str, entries: u64) -> Self {
        let table = ModelTable::built_in();
        let spec = ModelSpec::parse(model, &table, false).unwrap();
        let env = |name: &str| name.ends_with("_KEY").then(|| "key".to_owned());
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: "does something useful".into(),
            schema: serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        };
        let task = ConversationEntry {
            id: EntryId(0),
            item: ConversationItem::user(MessageOrigin::Task, "do it"),
        };
        let mut talk = Self {
            model: connect(&spec, &ModelConnectionSettings::default(), &table, &env).unwrap(),
            system: "You are a careful engineer. ".repeat(100).into(),
            tools: ["read_file", "edit_file", "grep", "run_command"].map(tool).into(),
            entries: std::iter::once(task).chain((1..entries).map(exchange)).collect(),
        };
        talk.prepare();
        talk
    }

    /// Adds an exchange, and puts the next request together.
    pub(crate) fn append(&mut self, new: ConversationEntry) {
        self.entries.push(new);
        self.prepare();
    }

    fn prepare(&mut self) {
        let ask = ModelRequest {
            model: 0,
            purpose: CallPurpose::Agent,
            attempt: 1,
            system: &self.system,
            tools: &self.tools,
            entries: &self.entries,
            input_bound: architect::types::Tokens::ZERO,
            instruction: None,
            max_output: None,
            schema: None,
        };
        assert!(self.model.prepare(&ask).is_ok());
    }
}
