//! `call_tool`: calls a deferred tool by its name.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{CALL_TOOL, DeferredTool, SEARCH_TOOLS};
use crate::machine::ConversationEntry;
use crate::port::{
    EffectContext, Model, ModelCall, ModelRequest, ReplyDelta, RequestDigest, ToolSpec,
};
use crate::tools::schema;
use crate::tools::tool::{Tool, ToolInvocation};
use crate::types::{
    ConversationItem, Fault, Reply, ReplyPart, ToolArguments, ToolCall, ToolExchange, nearest,
};

/// The arguments from the model, as a type for their schema.
#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The name of the tool.
    name: String,
    /// The arguments of the tool, which match its schema.
    #[allow(dead_code)]
    arguments: Map<String, Value>,
}

/// The arguments in their original text.
#[derive(Deserialize, Serialize)]
struct WrappedCall<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// The tool as described in requests. Calls that name a deferred tool are replaced before they reach it.
pub(super) struct CallTool {
    spec: ToolSpec,
    tools: Arc<[DeferredTool]>,
}

/// A model that calls deferred tools by [`CALL_TOOL`]. Such calls occur only in its requests: in its replies, they are
/// replaced.
pub(crate) struct DeferredToolsModel {
    model: Box<dyn Model>,
    names: Arc<HashSet<Arc<str>>>,
    /// The entries of the last request, with the calls as the model wrote them.
    written: Vec<ConversationEntry>,
}

struct DeferredToolsCall {
    call: Box<dyn ModelCall>,
    names: Arc<HashSet<Arc<str>>>,
}

impl CallTool {
    pub(super) fn new(tools: Arc<[DeferredTool]>) -> Self {
        let description = format!(
            "Calls a tool that {SEARCH_TOOLS} has found. Search first: the arguments have to match the schema of the tool."
        );
        Self { spec: schema::tool_spec::<Arguments>(CALL_TOOL, &description), tools }
    }
}

impl Tool for CallTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let Arguments { name, .. } = schema::parse_arguments(&self.spec, arguments)?;
        let meant = nearest(&name, self.tools.iter().map(|tool| &*tool.spec.name));
        Err(format!(
            "Invalid arguments for {CALL_TOOL}: there is no tool '{name}' to be called with it{}. {SEARCH_TOOLS} finds \
             tools by words or names.",
            meant.map(|meant| format!("; the nearest one is '{meant}'")).unwrap_or_default()
        ))
    }
}

impl DeferredToolsModel {
    /// Returns a model that calls these tools by their names.
    pub(crate) fn new(model: Box<dyn Model>, names: impl IntoIterator<Item = Arc<str>>) -> Self {
        let names = Arc::new(names.into_iter().collect());
        Self { model, names, written: Vec::new() }
    }

    /// Updates the entries with the calls as the model wrote them. An entry never changes, so only new ones are
    /// rewritten.
    fn update(&mut self, entries: &[ConversationEntry]) {
        let known = self.written.iter().zip(entries).take_while(|(a, b)| a.id == b.id).count();
        self.written.truncate(known);
        let names = &self.names;
        self.written.extend(entries[known..].iter().map(|entry| {
            let item = match &entry.item {
                ConversationItem::Exchange(exchange) => {
                    let reply = map_calls(exchange.reply(), |call| wrap(names, call));
                    // The ids of the calls stay the same.
                    let exchange = ToolExchange::new(reply, Arc::<[_]>::from(exchange.results()))
                        .unwrap_or_else(|_| exchange.clone());
                    ConversationItem::Exchange(exchange)
                }
                item @ (ConversationItem::User(_) | ConversationItem::Assistant(_)) => item.clone(),
            };
            ConversationEntry { id: entry.id, item }
        }));
    }
}

impl Model for DeferredToolsModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        self.update(ask.entries);
        let call = self.model.prepare(&ModelRequest { entries: &self.written, ..*ask })?;
        Ok(Box::new(DeferredToolsCall { call, names: Arc::clone(&self.names) }))
    }

    fn request_settings(&self) -> Value {
        let settings = self.model.request_settings();
        if settings.is_null() {
            return settings;
        }
        let mut names: Vec<&Arc<str>> = self.names.iter().collect();
        names.sort();
        json!({ "deferred": names, "model": settings })
    }
}

impl ModelCall for DeferredToolsCall {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        let reply = self.call.run(scope, sink)?;
        Ok(map_calls(&reply, |call| unwrap(&self.names, call)))
    }

    fn request_digest(&self) -> Option<RequestDigest> {
        self.call.request_digest()
    }
}

/// Returns a reply with some calls replaced.
fn map_calls(reply: &Reply, replace: impl Fn(&ToolCall) -> Option<ToolCall>) -> Reply {
    let part = |part: &ReplyPart| match part {
        ReplyPart::Call(call) => ReplyPart::Call(replace(call).unwrap_or_else(|| call.clone())),
        ReplyPart::Text(_) | ReplyPart::Opaque(_) => part.clone(),
    };
    Reply { parts: reply.parts.iter().map(part).collect(), ..reply.clone() }
}

/// Returns the call of a deferred tool that is named by `call`; `None` for other calls, and for unreadable arguments.
fn unwrap(names: &HashSet<Arc<str>>, call: &ToolCall) -> Option<ToolCall> {
    let ToolArguments::Complete { text } = &call.arguments else { return None };
    if *call.name != *CALL_TOOL {
        return None;
    }
    let WrappedCall { name, arguments } = serde_json::from_str(text).ok()?;
    let name = names.get(&*name)?;
    let text = arguments.map_or("{}", RawValue::get);
    // Some models write the object into a string.
    let inner: Option<String> = serde_json::from_str(text).ok();
    Some(ToolCall::new(call.id.clone(), name, inner.as_deref().unwrap_or(text)))
}

/// Returns the `call_tool` call that names a deferred tool; `None` for calls of other tools.
fn wrap(names: &HashSet<Arc<str>>, call: &ToolCall) -> Option<ToolCall> {
    if !names.contains(&call.name) {
        return None;
    }
    let wrapped = |text: &str| {
        let arguments: &RawValue = serde_json::from_str(text).ok()?;
        let call = WrappedCall { name: Cow::Borrowed(&call.name), arguments: Some(arguments) };
        serde_json::to_string(&call).ok()
    };
    let text = call.arguments.text();
    let text = wrapped(text).or_else(|| wrapped(&Value::from(text).to_string()))?;
    Some(ToolCall::new(call.id.clone(), CALL_TOOL, &text))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::tools::deferred) fn tool(server: &str, name: &str, about: &str) -> DeferredTool {
        let spec = ToolSpec { name: name.into(), description: about.into(), schema: json!({}) };
        DeferredTool { server: server.into(), spec }
    }

    fn names() -> HashSet<Arc<str>> {
        HashSet::from([Arc::from("mcp_s_echo")])
    }

    fn called(arguments: &str) -> Option<(String, ToolArguments)> {
        let call = ToolCall::new("c".into(), CALL_TOOL, arguments);
        unwrap(&names(), &call).map(|call| (call.name.to_string(), call.arguments))
    }

    #[test]
    fn a_call_is_one_of_the_tool_that_it_names() {
        let complete = |text: &str| {
            Some(("mcp_s_echo".to_owned(), ToolArguments::Complete { text: text.into() }))
        };
        for (arguments, expected) in [
            (
                r#"{"name":"mcp_s_echo","arguments":{"n": 12345678901234567890123}}"#,
                r#"{"n": 12345678901234567890123}"#,
            ),
            (r#"{"name":"mcp_s_echo"}"#, "{}"),
            (r#"{"name":"mcp_s_echo","arguments":null}"#, "{}"),
            (r#"{"name":"mcp_s_echo","arguments":"{\"a\":1}"}"#, r#"{"a":1}"#),
            (r#"{"name":"mcp_s_ech\u006f","arguments":{}}"#, "{}"),
        ] {
            assert_eq!(called(arguments), complete(expected), "{arguments}");
        }
        let (_, list) = called(r#"{"name":"mcp_s_echo","arguments":[1]}"#).unwrap();
        assert!(matches!(list, ToolArguments::Malformed { .. }));
        for other in [r#"{"name":"mcp_s_other"}"#, "{}", "[]", "{", r#"{"name":"call_tool"}"#] {
            assert_eq!(called(other), None, "{other}");
        }
        let direct = ToolCall::new("c".into(), "mcp_s_echo", "{}");
        assert_eq!(unwrap(&names(), &direct), None);
    }

    /// The model sees its own calls as it wrote them.
    #[test]
    fn a_call_is_sent_back_as_it_was_written() {
        let text = r#"{"name":"mcp_s_echo","arguments":{"b":1,"a": 2.50}}"#;
        let call = ToolCall::new("c".into(), CALL_TOOL, text);
        assert_eq!(wrap(&names(), &unwrap(&names(), &call).unwrap()), Some(call));
        let malformed = ToolCall::new("c".into(), "mcp_s_echo", r#"{"a"#);
        let wrapped = wrap(&names(), &malformed).unwrap();
        assert_eq!(wrapped.arguments.text(), r#"{"name":"mcp_s_echo","arguments":"{\"a"}"#);
        assert_eq!(wrap(&names(), &ToolCall::new("c".into(), "read_file", "{}")), None);
    }

    #[test]
    fn a_name_that_no_tool_has_is_an_error_with_the_nearest_one() {
        let tool = CallTool::new([tool("s", "mcp_s_echo", "")].into());
        let error = |text: &str| tool.prepare(text).err().unwrap();
        assert_eq!(
            error(r#"{"name":"mcp_s_eco","arguments":{}}"#),
            "Invalid arguments for call_tool: there is no tool 'mcp_s_eco' to be called with it; the nearest one is \
             'mcp_s_echo'. search_tools finds tools by words or names."
        );
        assert!(error("{}").contains("missing field `name`"), "{}", error("{}"));
    }
}
