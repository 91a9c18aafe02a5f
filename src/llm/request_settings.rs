//! The settings that determine the bytes of requests besides their content, in the form stored by a journal.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::exchange::{HttpTransport, IncomingResponse, RequestTarget, WireModel};
use super::provider::Provider;
use super::wire::WireSetup;
use crate::net::{HeaderMap, HttpRequest, NetError, Secrets};
use crate::port::{CancellationToken, Model};

/// The version of the encoding. It is increased when the encoding of a request changes.
const ENCODING: u32 = 1;

/// The settings of the requests to a model.
#[derive(Serialize, Deserialize)]
pub(super) struct RequestSettings {
    encoding: u32,
    #[serde(flatten)]
    setup: WireSetup,
}

/// The reason why requests can't be encoded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestSettingsError {
    /// The settings are not stored.
    #[error("their settings are not stored")]
    Missing,
    /// The settings are those of another release, or were changed.
    #[error("another version of this program has encoded them")]
    OtherEncoding,
}

impl RequestSettings {
    pub(super) fn new(setup: &WireSetup) -> Self {
        Self { encoding: ENCODING, setup: setup.clone() }
    }

    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the setup; `None` if this release does not know the provider.
    fn setup(self) -> Option<(&'static Provider, WireSetup)> {
        let (provider, model) = self.setup.id.split_once('/')?;
        let (provider, model) = (Provider::from_name(provider)?, model.to_owned());
        let (name, cloud) = (provider.name(), provider.cloud);
        Some((provider, WireSetup { provider: name, cloud, model, ..self.setup }))
    }
}

/// Returns a model that encodes requests like one with these settings, and sends none.
///
/// # Errors
///
/// Fails if the settings are not stored, or are those of another release.
pub fn encoding_model(settings: &Value) -> Result<Box<dyn Model>, RequestSettingsError> {
    if settings.is_null() {
        return Err(RequestSettingsError::Missing);
    }
    let stored = RequestSettings::deserialize(settings).ok();
    let stored = stored.filter(|stored| stored.encoding == ENCODING);
    let (provider, setup) =
        stored.and_then(RequestSettings::setup).ok_or(RequestSettingsError::OtherEncoding)?;
    Ok(Box::new(WireModel::new(RequestTarget {
        transport: Arc::new(NoTransport),
        model: Arc::clone(&setup.id),
        url: String::new(),
        headers: HeaderMap::new(),
        masker: Secrets::default(),
        key_source: None,
        signer: None,
        has_replaced_keys: AtomicBool::new(false),
        may_truncate: false,
        settings: settings.clone(),
        wire: (provider.format.wire)(setup),
    })))
}

/// A transport that sends nothing.
struct NoTransport;

impl HttpTransport for NoTransport {
    fn send(&self, _: &HttpRequest, _: &CancellationToken) -> Result<IncomingResponse, NetError> {
        Err(NetError::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::llm::tests::fixtures::{
        EMPTY_FRAME, encode_request, grep_tool, items_with_images, setup, tool_exchange, wires,
    };
    use crate::llm::wire::{RequestFrame, ToolChoice};
    use crate::types::{
        ConversationItem, Effort, MessageOrigin, OutputField, ReplyPart, Tokens, ToolCall,
        ToolStatus, hex,
    };

    /// Journals of earlier releases are verified with the encoding of this release. If the digest changes, increase
    /// [`ENCODING`], so that requests with another encoding are not compared.
    #[test]
    fn a_change_of_the_encoding_has_a_new_number() {
        let mut hasher = Sha256::new();
        let call = ToolCall::new("c".into(), "grep", r#"{"text":"a"}"#);
        let text = ReplyPart::Text("I look.".into());
        let mut items = vec![
            ConversationItem::user(MessageOrigin::Task, "do it"),
            tool_exchange(vec![text], [call], ToolStatus::Ok, "found"),
        ];
        items.extend(items_with_images());
        let tools = [grep_tool()];
        let schema = serde_json::json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let schema = Some(&schema);
        for (_, wire) in wires() {
            for tool_choice in [ToolChoice::Auto, ToolChoice::Disabled] {
                let system = "Be brief.";
                let frame =
                    RequestFrame { system, tools: &tools, tool_choice, schema, ..EMPTY_FRAME };
                hasher.update(encode_request(&*wire, &frame, &items, Some(Tokens(1_000))));
            }
        }
        let digest = "6352c018dfacc449aa4f5ebe4b67f8159b20550cac171617ec9c9e8e67f67ced";
        assert_eq!((ENCODING, hex(&hasher.finalize()).as_str()), (1, digest));
    }

    #[test]
    fn settings_are_read_back_as_they_were_stored() {
        let options = Arc::new(Map::from_iter([("seed".to_owned(), Value::from(7))]));
        let (effort, effort_word) = (Some(Effort::High), Some("much".to_owned()));
        let output_field = Some(OutputField::MaxCompletionTokens);
        let host = "h".to_owned();
        let all =
            WireSetup { host, output_field, options, effort, effort_word, ..setup("gemini/a/b") };
        for setup in [setup("openai/m"), all] {
            let settings = RequestSettings::new(&setup).to_json();
            let read = RequestSettings::deserialize(&settings).unwrap();
            assert_eq!(read.to_json(), settings);
            let (provider, read) = read.setup().unwrap();
            assert_eq!(format!("{}/{}", provider.name(), read.model), *setup.id);
            assert_eq!(RequestSettings::new(&read).to_json(), settings);
        }
    }

    #[test]
    fn settings_of_another_release_are_not_used() {
        let settings = RequestSettings::new(&setup("openai/m")).to_json();
        assert!(encoding_model(&settings).is_ok());
        let mut other = settings;
        other["encoding"] = 0.into();
        for unknown in [other, "x".into()] {
            assert_eq!(encoding_model(&unknown).err(), Some(RequestSettingsError::OtherEncoding));
        }
        assert_eq!(encoding_model(&Value::Null).err(), Some(RequestSettingsError::Missing));
    }
}
