//! Values of `llm.options`: fields of a request body, as JSON.

use std::convert::Infallible;

use serde_json::Value;

use super::key_spec::ValueType;
use super::origin::{ValueOrigin, may_be_secret};
use super::setting_value::SettingValue;
use super::value_tree::{ConfigNode, ConfigValue};
use crate::net::MASK;

/// A field of a request body.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOption(Value);

/// The fields that a request sets itself, for all API formats, each with the reason or the replacement. A dot separates
/// a table from its field.
const RESERVED: &[(&str, &str)] = &[
    ("model", "use --model"),
    ("models", "use --model"),
    ("route", "use --model"),
    ("preset", "use --model"),
    ("messages", CONVERSATION),
    ("input", CONVERSATION),
    ("contents", CONVERSATION),
    ("cachedContent", CONVERSATION),
    ("previous_response_id", CONVERSATION),
    ("conversation", CONVERSATION),
    ("prompt", CONVERSATION),
    ("background", "a reply is awaited"),
    ("system", PROMPT),
    ("instructions", PROMPT),
    ("systemInstruction", PROMPT),
    ("tools", "the tools follow from the agent"),
    ("functions", "the tools follow from the agent"),
    ("mcp_servers", "the tools follow from the agent"),
    ("tool_choice", "the tools follow from the agent"),
    ("toolConfig", "the tools follow from the agent"),
    ("stream", "use `llm.stream`"),
    ("stream_options", "use `llm.stream`"),
    ("max_tokens", LIMIT),
    ("max_completion_tokens", LIMIT),
    ("max_output_tokens", LIMIT),
    ("generationConfig.maxOutputTokens", LIMIT),
    ("n", REPLIES),
    ("generationConfig.candidateCount", REPLIES),
    ("response_format", SCHEMA),
    ("text.format", SCHEMA),
    ("output_config.format", SCHEMA),
    ("generationConfig.responseJsonSchema", SCHEMA),
    ("generationConfig.responseSchema", SCHEMA),
    ("generationConfig.responseMimeType", SCHEMA),
];

const CONVERSATION: &str = "the request has the conversation there";
const PROMPT: &str = "set `system_prompt` of an agent";
const LIMIT: &str = "use `llm.max_output_tokens`";
const REPLIES: &str = "a call has one reply";
const SCHEMA: &str = "use --output-schema";

impl RequestOption {
    /// Returns the value.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// Adds the texts in the value that may be secrets to `found`.
    pub(crate) fn collect_secrets<'a>(&'a self, found: &mut Vec<&'a str>) {
        let mut open = vec![&self.0];
        while let Some(value) = open.pop() {
            match value {
                Value::String(text) if may_be_secret(text) => found.push(text),
                Value::Array(items) => open.extend(items),
                Value::Object(fields) => open.extend(fields.values()),
                _ => {}
            }
        }
    }

    /// Returns the first reserved field that the option `name` sets, with the reason or the replacement.
    pub(super) fn reserved_field(&self, name: &str) -> Option<(&'static str, &'static str)> {
        // Gemini accepts `generation_config` for `generationConfig`, too.
        let is_same = |a: &str, b: &str| {
            let letters = |text: &str| text.replace('_', "").to_ascii_lowercase();
            letters(a) == letters(b)
        };
        let has = |field: &str| {
            let mut fields = self.0.as_object().into_iter().flatten();
            fields.any(|(name, _)| is_same(name, field))
        };
        let is_set = |path: &str| match path.split_once('.') {
            None => is_same(path, name),
            Some((first, rest)) => is_same(first, name) && has(rest),
        };
        RESERVED.iter().copied().find(|(path, _)| is_set(path))
    }
}

/// Parts of the names of headers that carry a key.
const KEY_HEADERS: [&str; 7] =
    ["authorization", "api-key", "apikey", "goog-api", "cookie", "token", "secret"];

/// The headers that a request sets itself.
const OWN_HEADERS: [&str; 7] = [
    "accept",
    "anthropic-version",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// Returns the reason why the user can't set a header; `None` if the user can.
pub(super) fn reserved_header(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    if KEY_HEADERS.iter().any(|part| name.contains(part)) {
        return Some("can't be set here; a key belongs into a variable, which --api-key-env names");
    }
    OWN_HEADERS.contains(&&*name).then_some("can't be set here; each request sets it itself")
}

/// Returns whether a text can be the name of a header.
pub(super) fn is_header_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(fits)
}

impl SettingValue for RequestOption {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        to_json(value)
            .map(Self)
            .ok_or_else(|| "a text, a number, true, false, a list or a table".to_owned())
    }

    fn to_value(&self) -> ConfigValue {
        let masked = |text: &str| {
            // Displayed values may be copied into an issue.
            let shown = if may_be_secret(text) { MASK } else { text };
            Ok::<_, Infallible>(shown.to_owned())
        };
        let Ok(value) = ConfigValue::from_json(&self.0, &ValueOrigin::DEFAULT, &masked);
        value
    }

    fn value_type() -> ValueType {
        ValueType::Any
    }
}

/// Converts a value to JSON; `None` if JSON has no such value. A text from an option becomes a number or a boolean if
/// possible.
fn to_json(value: &ConfigValue) -> Option<Value> {
    match value {
        ConfigValue::Bool(value) => Some((*value).into()),
        ConfigValue::Integer(number) => Some((*number).into()),
        ConfigValue::Float(number) => serde_json::Number::from_f64(*number).map(Value::Number),
        ConfigValue::Text(text) => Some(text.as_str().into()),
        ConfigValue::Untyped(text) => Some(
            serde_json::from_str(text.trim())
                .ok()
                .filter(|value: &Value| !value.is_null())
                .unwrap_or_else(|| text.as_str().into()),
        ),
        ConfigValue::Date(_) => None,
        ConfigValue::List(items) => items.iter().map(|item| to_json(&item.value)).collect(),
        ConfigValue::Table(table) => {
            let entry =
                |(name, node): (&String, &ConfigNode)| Some((name.clone(), to_json(&node.value)?));
            table.iter().map(entry).collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{ConfigSources, load};

    fn loaded(set: &str) -> Result<Value, String> {
        let sets = vec![set.to_owned()];
        let config = load(&ConfigSources { sets, ..ConfigSources::default() });
        let config = config.map_err(|error| error.to_string())?;
        let options = config.settings.llm.options.iter();
        Ok(options.map(|(name, option)| (name.clone(), option.json().clone())).collect())
    }

    #[test]
    fn options_keep_their_types() {
        for (set, expected) in [
            ("llm.options.temperature=0.2", json!({"temperature": 0.2})),
            ("llm.options.seed=7", json!({"seed": 7})),
            ("llm.options.store=true", json!({"store": true})),
            ("llm.options.service_tier=flex", json!({"service_tier": "flex"})),
            (
                "llm.options={ reasoning = { summary = 'auto' }, stop = ['a'] }",
                json!({"reasoning": {"summary": "auto"}, "stop": ["a"]}),
            ),
        ] {
            assert_eq!(loaded(set), Ok(expected), "{set}");
        }
    }

    #[test]
    fn what_the_request_sets_itself_is_refused() {
        for (set, advice) in [
            ("llm.options.model=x", "use --model"),
            ("llm.options.messages=[]", "conversation"),
            ("llm.options.stream=false", "use `llm.stream`"),
            ("llm.options.max_tokens=5", "use `llm.max_output_tokens`"),
            (
                "llm.options={ generationConfig = { maxOutputTokens = 5 } }",
                "use `llm.max_output_tokens`",
            ),
            (
                "llm.options={ generation_config = { max_output_tokens = 5 } }",
                "use `llm.max_output_tokens`",
            ),
            ("llm.options.models=[]", "use --model"),
            ("llm.options.previous_response_id=x", "conversation"),
            ("llm.headers.Authorization=x", "--api-key-env"),
            ("llm.headers.X-Api-Key=x", "--api-key-env"),
            ("llm.headers.content-type=x", "each request sets it itself"),
            ("llm.headers.Content-Length=5", "each request sets it itself"),
            ("llm.headers.anthropic-version=2023-06-01", "each request sets it itself"),
            ("llm.headers={ 'a b' = 'x' }", "the name of a header"),
        ] {
            let error = loaded(set).unwrap_err();
            assert!(error.contains(advice), "{set}: {error}");
        }
        assert!(loaded("llm.headers.anthropic-beta=context-1m").is_ok());
    }
}
