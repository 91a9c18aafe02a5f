//! Calling a model as the runner does.

use std::sync::Arc;
use std::time::Duration;

use architect::llm::model_table::ModelTable;
use architect::llm::{ConnectError, ModelConnectionSettings, ModelSpec, connect};
use architect::machine::{CallPurpose, ConversationEntry, EntryId};
use architect::port::{EffectContext, Model, ModelRequest, ReplyDelta, ToolSpec};
use architect::types::{
    ConversationItem, Fault, MessageOrigin, Reply, Tokens, ToolExchange, ToolResult, ToolStatus,
};
use serde_json::Value;

use crate::kit::effect::scope;
use crate::kit::server::Server;

/// The key, which must not appear anywhere but in its header.
pub(crate) const KEY: &str = "canary-key-0123456789";

/// A model with a conversation.
pub(crate) struct WireCaller {
    pub(crate) model: Box<dyn Model>,
    pub(crate) entries: Vec<ConversationEntry>,
    pub(crate) tools: Arc<[ToolSpec]>,
    pub(crate) system: Arc<str>,
    pub(crate) instruction: Option<String>,
    pub(crate) schema: Option<Arc<Value>>,
    pub(crate) max_output: Option<Tokens>,
    pub(crate) attempt: u32,
    next: u64,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) reply: Result<Reply, Fault>,
    pub(crate) deltas: Vec<ReplyDelta>,
}

/// Returns settings with timeouts that no test reaches.
pub(crate) fn long_timeouts(server: &Server, path: &str) -> ModelConnectionSettings {
    ModelConnectionSettings {
        api_base: Some(server.url(path)),
        timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(10),
        ..ModelConnectionSettings::default()
    }
}

/// Every variable that ends in `KEY` is set.
pub(crate) fn env(name: &str) -> Option<String> {
    name.ends_with("KEY").then(|| KEY.to_owned())
}

impl WireCaller {
    /// Returns a model at a server, with one message of the user.
    pub(crate) fn new(model: &str, settings: &ModelConnectionSettings) -> Self {
        Self::with_env(model, settings, &env).unwrap()
    }

    pub(crate) fn with_env(
        model: &str,
        settings: &ModelConnectionSettings,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConnectError> {
        let table = ModelTable::built_in();
        let spec = ModelSpec::parse(model, &table, settings.api_base.is_some()).unwrap();
        let model = connect(&spec, settings, &table, env)?;
        let mut caller = Self {
            model,
            entries: Vec::new(),
            tools: [].into(),
            system: "be good".into(),
            instruction: None,
            schema: None,
            max_output: None,
            attempt: 1,
            next: 0,
        };
        caller.add_user_message("do it");
        Ok(caller)
    }

    /// Adds a message of the user.
    pub(crate) fn add_user_message(&mut self, text: &str) {
        self.push(ConversationItem::user(MessageOrigin::Task, text));
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, item: ConversationItem) {
        self.entries.push(ConversationEntry { id: EntryId(self.next), item });
        self.next += 1;
    }

    /// Adds a reply, with a result for each of its tool calls.
    pub(crate) fn add_reply(&mut self, reply: Reply) {
        let results: Vec<_> = reply
            .calls()
            .map(|call| {
                ToolResult::new(call.id.clone(), ToolStatus::Ok, format!("{} ran", call.name))
            })
            .collect();
        self.push(match results.is_empty() {
            true => ConversationItem::Assistant(reply),
            false => ConversationItem::Exchange(ToolExchange::new(reply, results).unwrap()),
        });
    }

    /// Calls the model, and checks that nothing shows the key.
    pub(crate) fn call(&mut self) -> CallResult {
        self.call_in(&scope())
    }

    pub(crate) fn call_in(&mut self, scope: &EffectContext) -> CallResult {
        self.call_observed(scope, |_| {})
    }

    /// Calls the model, and `on_delta` with each part of the reply as it comes.
    pub(crate) fn call_observed(
        &mut self,
        scope: &EffectContext,
        mut on_delta: impl FnMut(&ReplyDelta),
    ) -> CallResult {
        let ask = ModelRequest {
            model: 0,
            purpose: CallPurpose::Agent,
            attempt: self.attempt,
            system: &self.system,
            tools: &self.tools,
            entries: &self.entries,
            input_bound: Tokens::ZERO,
            instruction: self.instruction.as_deref(),
            max_output: self.max_output,
            schema: self.schema.as_ref(),
        };
        let mut deltas = Vec::new();
        let call = self.model.prepare(&ask).unwrap();
        let reply = call.run(scope, &mut |delta| {
            on_delta(&delta);
            deltas.push(delta);
        });
        let called = CallResult { reply, deltas };
        let shown = format!("{called:?}");
        assert!(!shown.contains(KEY), "the key shows: {shown}");
        called
    }
}

impl CallResult {
    pub(crate) fn reply(self) -> Reply {
        self.reply.unwrap()
    }

    pub(crate) fn fault(self) -> Fault {
        match self.reply {
            Err(fault) => fault,
            Ok(reply) => panic!("no fault but {reply:?}"),
        }
    }

    /// Returns the text that was streamed.
    pub(crate) fn streamed(&self) -> String {
        let text = |delta: &ReplyDelta| match delta {
            ReplyDelta::Text(text) => Some(text.clone()),
            ReplyDelta::Started | ReplyDelta::Reasoning(_) | ReplyDelta::Call(_) => None,
        };
        self.deltas.iter().filter_map(text).collect()
    }
}
