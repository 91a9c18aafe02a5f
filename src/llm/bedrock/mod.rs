//! Amazon Bedrock: Anthropic Messages through `InvokeModel` and `InvokeModelWithResponseStream`.
//!
//! Requests are signed (`signature`) with keys from the environment, a profile or a command (`credentials`), unless
//! there is a Bedrock API key.

mod credentials;
mod profile;
mod signature;
mod signer;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::anthropic;
use super::decode::{DeltaBuffer, TextField};
use super::fault::{ApiError, classify_stream_error};
use super::wire::{
    ApiFormat, ReplyReader, Result, WireSetup, parse_json, path_or_default, protocol_fault,
    push_event,
};
use crate::net::event_stream::EventMessage;
use crate::net::sse::SseEvent;

pub use credentials::CredentialsError;
pub(super) use credentials::CredentialsSource;
pub(super) use profile::find_region;
pub(super) use signer::BedrockSigner;

/// The base URL in a region.
pub(super) const BASE_URL: &str = "https://bedrock-runtime.{AWS_REGION}.amazonaws.com";

/// The variable with a Bedrock API key, and the variable with the id of a key for signatures.
pub(super) const KEY_VARIABLES: [&str; 2] = ["AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"];

/// The variables that may hold the region.
pub(super) const REGION_VARIABLES: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];

/// Amazon Bedrock.
pub(super) static FORMAT: ApiFormat = ApiFormat {
    name: "Messages",
    base_path: path_or_default,
    path: |WireSetup { model, is_streaming, .. }| {
        let operation = if *is_streaming { "invoke-with-response-stream" } else { "invoke" };
        // The name may be an ARN, with colons and a slash.
        format!("/model/{}/{operation}", signature::encode_uri(model))
    },
    wire: anthropic::FORMAT.wire,
};

/// Reads a message of a stream, which is a part of the reply or an error. Other messages are ignored.
pub(super) fn read_message(
    message: &EventMessage<'_>,
    reader: &mut dyn ReplyReader,
    deltas: &mut DeltaBuffer,
) -> Result {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Payload<'a> {
        #[serde(borrow)]
        bytes: TextField<'a>,
        #[serde(borrow)]
        message: TextField<'a>,
    }
    let header = |name| message.header(name).unwrap_or_default();
    let payload = || {
        let text = std::str::from_utf8(message.payload);
        let text = text.map_err(|_| protocol_fault("an event is not UTF-8"))?;
        parse_json::<Payload<'_>>(text)
    };
    let error = |kind: &str, message: &str| {
        let (kind, message) = (kind.to_lowercase(), message.to_owned());
        Err(classify_stream_error(&ApiError { message, kind, ..ApiError::default() }))
    };
    match (header(":message-type"), header(":event-type")) {
        ("event", "chunk") => {
            let part = STANDARD.decode(payload()?.bytes.as_str());
            let part = part.map_err(|_| protocol_fault("an event is not in Base64"))?;
            let data = std::str::from_utf8(&part);
            let data = data.map_err(|_| protocol_fault("an event is not UTF-8"))?;
            push_event(reader, SseEvent { name: "", data }, deltas)
        }
        ("exception", _) => {
            // Without a text, the kind of the error is enough.
            let payload = payload().unwrap_or_default();
            error(header(":exception-type"), payload.message.as_str())
        }
        ("error", _) => error(header(":error-code"), header(":error-message")),
        _ => Ok(()),
    }
}
