//! How models are called.

use crate::config::setting_value::words;
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::{HttpUrl, ModelName, VariableName};
use crate::model::{TimeSpan, Tokens};

/// How models are called.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmConfig {
    /// The model, as `provider/name` or as a name that the model table knows.
    pub model: Option<ModelName>,
    /// Another endpoint of the same wire format.
    pub api_base: Option<HttpUrl>,
    /// The variable that holds the key of that endpoint.
    pub api_key_env: Option<VariableName>,
    /// Whether a key may go to another machine unencrypted.
    pub allow_http: bool,
    /// How long connecting, and the wait for the first byte, may take.
    pub timeout: TimeSpan,
    /// How long an answer may be silent between two bytes.
    pub idle_timeout: TimeSpan,
    /// How long one attempt may take in all.
    pub call_timeout: TimeSpan,
    /// Attempts after the first one.
    pub retries: u32,
    /// Whether replies are streamed.
    pub stream: bool,
    /// Whether prompt caches are used where the wire format has marks for them.
    pub prompt_caching: bool,
    /// The most that one reply may have.
    pub max_output_tokens: Option<Tokens>,
}

/// What is done when a run has a budget and its model has no price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownPricePolicy {
    /// The run does not begin.
    Refuse,
    /// The user is warned, and money is not counted.
    Warn,
}
words!(UnknownPricePolicy { "refuse" => Refuse, "warn" => Warn });

/// The shortest time limit that makes sense.
pub(super) const MIN_TIMEOUT: TimeSpan = TimeSpan::from_millis(1);
/// A day.
pub(super) const DAY: TimeSpan = TimeSpan::from_secs(86_400);

impl LlmConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            model: from.optional("model"),
            api_base: from.optional("api_base"),
            api_key_env: from.optional("api_key_env"),
            allow_http: from.value_or("allow_http", false),
            timeout: from.in_range_or("timeout", TimeSpan::from_secs(60), MIN_TIMEOUT..=DAY),
            idle_timeout: from.in_range_or(
                "idle_timeout",
                TimeSpan::from_secs(120),
                MIN_TIMEOUT..=DAY,
            ),
            call_timeout: from.in_range_or(
                "call_timeout",
                TimeSpan::from_secs(600),
                MIN_TIMEOUT..=DAY,
            ),
            retries: from.in_range_or("retries", 3, 0..=100),
            stream: from.value_or("stream", true),
            prompt_caching: from.value_or("prompt_caching", true),
            max_output_tokens: from
                .optional_in_range("max_output_tokens", Tokens(1)..=Tokens(10_000_000)),
        }
    }
}
