//! Calls of models, and their costs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{DAY, timeout};
use crate::config::key_declaration::{default, map, optional, section};
use crate::config::key_spec::UntrustedChange::{Allowed, Lower, Only, Stricter};
use crate::config::key_spec::{option, switch};
use crate::config::request_option::{RequestOption, is_header_name, reserved_header};
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::{HttpUrl, ModelName, SecretText, VariableName};
use crate::types::{Effort, OutputField, TimeSpan, Tokens, WordEnum, word_enum};

section! {
    /// Calls of models.
    pub struct LlmConfig {
        /// The model, as PROVIDER/NAME: {providers}, scripted/FILE, replay/FILE; or a name from the model table.
        model: Option<ModelName> = optional()
            .example("\"anthropic/claude-sonnet-5-5\"")
            .option(option("model", "PROVIDER/NAME").short('m')),
        /// The base URL of another endpoint with the same API format.
        api_base: Option<HttpUrl> = optional()
            .example("\"http://localhost:8000/v1\"")
            .option(option("api-base", "URL")),
        /// The environment variable that holds the key.
        api_key_env: Option<VariableName> = optional()
            .example("\"MY_API_KEY\"")
            .option(option("api-key-env", "NAME")),
        /// A shell command that prints the key; it runs once, and again when its key is rejected. `api_key_env` takes
        /// precedence.
        api_key_command: Option<String> = optional().example("\"pass show my-api-key\""),
        /// Whether a key may be sent to another machine unencrypted.
        allow_http: bool = default(false).untrusted(Only(false)),
        /// Seconds to connect and to wait for the first byte of the response; ten times as long without streaming,
        /// since the response then begins when the reply is complete.
        timeout: TimeSpan = timeout(60),
        /// Seconds of silence within a response.
        idle_timeout: TimeSpan = timeout(120),
        /// Seconds for one whole attempt. The first of the three timeouts that expires ends the attempt.
        call_timeout: TimeSpan = timeout(600),
        /// Attempts after the first one. The wait before each is random, up to a maximum that doubles to 30 seconds:
        /// half a minute in all on average.
        retries: u32 = default(6).range(0..=100).untrusted(Lower),
        /// Time for which a call is retried after its first failure. It replaces `retries`.
        retry_for: Option<TimeSpan> = optional()
            .range(TimeSpan::ZERO..=DAY)
            .example("\"10m\""),
        /// Whether replies are streamed.
        stream: bool = default(true)
            .untrusted(Allowed)
            .option(switch("no-stream", "false").help("Request whole replies instead of streams").output()),
        /// Whether requests mark their prefix for the provider's prompt cache, where the API supports it.
        // Without caching the same run costs many times as much.
        prompt_caching: bool = default(true).untrusted(Only(true)),
        /// The model that summarizes older parts of a conversation, named as in `model`, which is the default. `effort`
        /// does not apply to it.
        summary_model: Option<ModelName> = optional().example("\"anthropic/claude-haiku-4-5\""),
        /// Models to use, in this order, when the model is overloaded, rate limited, unreachable or missing and its
        /// retries are used up; named as in `model`. The run does not return to an earlier one.
        fallback: Vec<ModelName> = default(Vec::new()).example("[\"openai/gpt-5.2\"]"),
        /// The maximum number of tokens in a reply.
        max_output_tokens: Option<Tokens> = optional()
            .range(Tokens(1)..=Tokens(10_000_000))
            .untrusted(Lower)
            .example("16000"),
        /// The reasoning effort: "none", "low", "medium", "high", or "max", the most that the model has. A model
        /// without that effort is refused. With "default", the provider decides.
        effort: EffortChoice = default(EffortChoice(None))
            .example("\"high\"")
            .option(option("effort", "EFFORT")),
        /// Additional fields in the body of each request, such as `temperature`, `seed` or `service_tier`, named as in
        /// the provider's API. Tables are merged. The model, the conversation, the tools and the limits can't be set
        /// here.
        options: BTreeMap<String, RequestOption> = map().example("{ temperature = 0.2, seed = 7 }"),
        /// Additional headers of each request. Keys are set with `api_key_env`, not here. Headers that a request sets
        /// itself, such as `content-type` or `anthropic-version`, can't be set.
        headers: BTreeMap<String, SecretText> = map().example("{ X-Team = \"build\" }"),
    }
}

/// Reads the section, and reports fields and headers that a request sets itself.
pub(super) fn read(from: &mut SettingsReader<'_>) -> LlmConfig {
    let llm = LlmConfig::read(from);
    for (name, option) in &llm.options {
        if let Some((field, advice)) = option.reserved_field(name) {
            from.reject_entry("options", name, &format!("can't set {field}; {advice}"));
        }
    }
    for name in llm.headers.keys() {
        if !is_header_name(name) {
            from.reject_entry("headers", name, "is not the name of a header");
        } else if let Some(problem) = reserved_header(name) {
            from.reject_entry("headers", name, problem);
        }
    }
    llm
}

section! {
    /// A model that the user defines.
    #[derive(Default)]
    pub struct ModelConfig {
        /// The model, as PROVIDER/NAME.
        model: Option<ModelName> = optional().example("\"openai-chat/my-model\""),
        /// Its base URL, instead of `llm.api_base`.
        api_base: Option<HttpUrl> = optional().example("\"http://localhost:8000/v1\""),
        /// The environment variable that holds its key, instead of `llm.api_key_env`.
        api_key_env: Option<VariableName> = optional().example("\"MY_API_KEY\""),
        /// A shell command that prints its key, instead of the key of `llm`; see `llm.api_key_command`.
        api_key_command: Option<String> = optional().example("\"pass show my-other-key\""),
        /// The context window in tokens.
        window: Option<Tokens> = optional()
            .range(Tokens(1_000)..=Tokens(1_000_000_000))
            .example("128000"),
        /// The maximum number of tokens in a reply.
        output: Option<Tokens> = optional().range(Tokens(1)..=Tokens(10_000_000)).example("16000"),
        /// The field of a request of Chat Completions that has this maximum: `max_tokens` or `max_completion_tokens`. By
        /// default, it depends on the server.
        output_field: Option<OutputField> = optional().example("\"max_completion_tokens\""),
        /// The price in US dollars per million tokens: `input`, `output`, `cached_input` and `cache_write`; the last
        /// two default to `input`.
        price: BTreeMap<String, f64> = map().example("{ input = 1.0, output = 4.0 }"),
        /// The provider's names for the efforts of the model, the lowest first; an empty list if it has none.
        efforts: Option<Vec<String>> = optional().example("[\"low\", \"high\"]"),
        /// Whether the model accepts images. Otherwise it gets their names and sizes as text.
        images: Option<bool> = optional().example("true"),
    }
}

section! {
    /// Prices of models.
    pub struct CostsConfig {
        /// A TOML file with a table for each model, such as [models.openai-chat."my-model"]:
        /// `price = { input = 1.0, output = 4.0 }` in US dollars per million tokens (`cached_input` and `cache_write` too),
        /// `window` and `output` in tokens.
        prices_file: Option<PathBuf> = optional().example("\"prices.toml\""),
        /// If a run has a budget and its model no price: "refuse" to start, or "warn" and don't count its cost.
        unknown_price: UnknownPricePolicy = default(UnknownPricePolicy::Refuse).untrusted(Stricter),
    }
}

/// The reasoning effort that the user chooses; `None` if the provider decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffortChoice(pub Option<Effort>);

impl WordEnum for EffortChoice {
    const WORDS: &'static [(&'static str, Self)] = &{
        let mut words = [("default", Self(None)); Effort::ALL.len() + 1];
        let mut index = 0;
        while index < Effort::ALL.len() {
            let effort = Effort::ALL[index];
            index += 1;
            words[index] = (effort.as_str(), Self(Some(effort)));
        }
        words
    };
}

word_enum! {
    /// The behavior of a run that has a budget while its model has no price.
    pub enum UnknownPricePolicy {
        /// The run does not begin.
        Refuse = "refuse",
        /// The user is warned, and the cost is not counted.
        Warn = "warn",
    }
}
