//! Models: API formats over HTTP, scripts, and recordings.
//!
//! [`connect`](connect()) creates a model from a [`ModelSpec`] and [`ModelConnectionSettings`]. The API formats share
//! the encoding of requests (`encode`), the exchange with the server (`exchange`), the result of reading a reply
//! (`decode`), and the classification of errors (`fault`). Each API format has its own folder with its path, headers,
//! requests and replies (`wire`); `provider` is the table of the providers.
//!
//! [`Recorder`] records requests and responses, and `replay/FILE` plays them (`cassette`).
//!
//! A reply counts only with its terminal event. A call is a single attempt; the machine decides about retries. Errors,
//! logs and recordings never contain a key.

mod anthropic;
mod bedrock;
mod cassette;
mod connect;
mod decode;
mod encode;
mod exchange;
mod fault;
mod gemini;
mod key_command;
mod model_list;
mod model_spec;
pub mod model_table;
mod openai_chat;
mod openai_responses;
mod playback_error;
mod provider;
mod request_settings;
mod schema;
pub mod scripted;
mod secret_command;
#[cfg(test)]
mod tests;
mod vertex;
mod wire;

pub use bedrock::CredentialsError;
pub use cassette::{OnMismatch, RecordError, Recorder, Recording};
pub use connect::{
    ConnectError, EnvLookup, ModelConnectionSettings, connect, has_same_origin, list_models,
};
pub use key_command::KeyCommandSetting;
pub(crate) use key_command::command_key;
pub use model_spec::{ModelSpec, ModelSpecError};
pub use playback_error::PlaybackError;
pub use provider::{PROVIDERS, Provider, provider_names, provider_table};
pub use request_settings::{RequestSettingsError, encoding_model};
