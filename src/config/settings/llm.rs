//! How models are called.

use crate::config::reader::Reader;
use crate::config::setting::words;
use crate::config::text::{HttpUrl, VariableName, Word};
use crate::model::{Span, Tokens};

/// How models are called.
#[derive(Clone, Debug, PartialEq)]
pub struct Llm {
    /// The model, as `provider/name` or as a name that the model table knows.
    pub model: Option<Word>,
    /// Another endpoint of the same wire format.
    pub api_base: Option<HttpUrl>,
    /// The variable that holds the key of that endpoint.
    pub api_key_env: Option<VariableName>,
    /// Whether a key may go to another machine unencrypted.
    pub allow_http: bool,
    /// How long connecting, and the wait for the first byte, may take.
    pub timeout: Span,
    /// How long an answer may be silent between two bytes.
    pub idle_timeout: Span,
    /// How long one attempt may take in all.
    pub call_timeout: Span,
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
pub enum UnknownPrice {
    /// The run does not begin.
    Refuse,
    /// The user is warned, and money is not counted.
    Warn,
}
words!(UnknownPrice { "refuse" => Refuse, "warn" => Warn });

/// The shortest time limit that makes sense.
pub(super) const SHORTEST: Span = Span::millis(1);
/// A day.
pub(super) const DAY: Span = Span::secs(86_400);

impl Llm {
    pub(super) fn read(from: &mut Reader<'_>) -> Self {
        Self {
            model: from.maybe("model"),
            api_base: from.maybe("api_base"),
            api_key_env: from.maybe("api_key_env"),
            allow_http: from.or("allow_http", false),
            timeout: from.within("timeout", Span::secs(60), SHORTEST..=DAY),
            idle_timeout: from.within("idle_timeout", Span::secs(120), SHORTEST..=DAY),
            call_timeout: from.within("call_timeout", Span::secs(600), SHORTEST..=DAY),
            retries: from.within("retries", 3, 0..=100),
            stream: from.or("stream", true),
            prompt_caching: from.or("prompt_caching", true),
            max_output_tokens: from
                .maybe_within("max_output_tokens", Tokens(1)..=Tokens(10_000_000)),
        }
    }
}
