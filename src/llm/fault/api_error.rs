//! The errors of providers.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::types::FaultKind;

/// An error reported by a provider, in an error response or within a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApiError {
    /// The response of the proxy.
    pub(crate) message: String,
    /// The provider's kind of error, in lower case.
    pub(crate) kind: String,
    /// The provider's code, a word or a number, in lower case.
    pub(crate) code: String,
    /// The HTTP status in the error.
    pub(crate) status: Option<u16>,
}

impl ApiError {
    /// Finds the error in a response in any of the common forms.
    ///
    /// Known: `{"error": {…}}`, `{"error": "…"}`, a list of one of these, `{"message": …}`, `{"detail": …}`,
    /// `{"errors": […]}`.
    pub(crate) fn find(answer: &Value) -> Option<Self> {
        match answer {
            Value::Array(items) => items.iter().find_map(Self::find),
            Value::Object(map) => {
                let error = map.get("error").filter(|error| !error.is_null());
                let others = ["errors", "detail", "message", "Message", "msg"];
                let other = || others.iter().find_map(|key| map.get(*key));
                let mut found = Self::from_value(error.or_else(other)?)?;
                found.fill_missing(answer);
                Some(found)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    /// Parses an error object or an error text.
    pub(crate) fn from_value(error: &Value) -> Option<Self> {
        match error {
            Value::String(message) => Some(Self { message: message.clone(), ..Self::default() }),
            Value::Array(items) => items.first().and_then(Self::from_value),
            Value::Object(map) => {
                let message = ["message", "msg", "detail", "error"]
                    .iter()
                    .find_map(|key| map.get(*key))
                    .map(value_text)
                    .unwrap_or_default();
                let mut found = Self { message, ..Self::default() };
                found.fill_missing(error);
                // OpenRouter omits the kind if it rejects a request itself.
                if found.kind.is_empty() && error.pointer("/metadata/flagged_input").is_some() {
                    "moderation".clone_into(&mut found.kind);
                }
                // OpenRouter puts the message of the upstream server one level deeper.
                if let Some(raw) = error.pointer("/metadata/raw") {
                    found.message = format!("{}: {}", found.message, value_text(raw));
                }
                Some(found)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    fn fill_missing(&mut self, from: &Value) {
        let word = |keys: &[&str]| {
            let found = keys.iter().find_map(|key| from.get(*key)).filter(|value| !value.is_null());
            found.filter(|value| !value.is_object()).map(|value| value_text(value).to_lowercase())
        };
        if self.kind.is_empty() {
            self.kind = word(&["type", "status"]).unwrap_or_default();
        }
        if self.code.is_empty() {
            self.code = word(&["code"]).unwrap_or_default();
        }
        let number = |key: &str| from.get(key)?.as_u64().and_then(|code| u16::try_from(code).ok());
        let is_status = |status: &u16| (400..600).contains(status);
        self.status = self.status.or_else(|| {
            let own = [number("code"), number("status_code"), number("status")];
            own.into_iter().flatten().find(is_status).or_else(|| self.code.parse().ok())
        });
        self.status = self.status.filter(is_status);
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns whether a field contains an error, rather than an empty value.
pub(crate) fn is_error(json: &RawValue) -> bool {
    let value: Result<Value, _> = serde_json::from_str(json.get());
    value.is_ok_and(|value| !is_blank(&value))
}

/// Returns whether a value is empty.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Error texts for requests that exceed the context window, from different providers and servers.
const OVERFLOW: [&str; 24] = [
    "prompt is too long",                   // Anthropic
    "exceed context limit",                 // Anthropic, input and output together
    "input is too long for requested",      // Bedrock
    "exceeds the context window",           // OpenAI
    "maximum context length",               // OpenAI, OpenRouter, vLLM, Mistral, DeepSeek
    "context_length_exceeded",              // OpenAI's code, and many who copy it
    "exceeds the maximum number of tokens", // Gemini
    "maximum prompt length",                // xAI
    "reduce the length of the messages",    // Groq
    "exceeds the available context size",   // llama.cpp
    "exceed_context_size",                  // llama.cpp's type
    "greater than the context length",      // LM Studio
    "exceeds the limit of",                 // GitHub Copilot; only with the word "token"
    "context window exceeds limit",         // MiniMax
    "contextwindowexceeded",                // LiteLLM's class
    "context window exceeded",              // and its words
    "exceeded model token limit",           // Kimi
    "model_context_window_exceeded",        // z.ai
    "too many tokens",                      // Cohere
    "token limit exceeded",
    "string_above_max_length",  // OpenAI: one message alone is too long
    "request_too_large",        // Anthropic: too many bytes
    "request entity too large", // proxies
    "prompt too long",          // Ollama
];

/// Error texts for accounts without credit or quota; a retry does not help.
const QUOTA: [&str; 11] = [
    "insufficient_quota",
    "insufficient quota",
    "billing_hard_limit",
    "billing_error",
    "credit balance is too low",
    "insufficient balance",
    "insufficient credits",
    "insufficient_balance",
    "requires more credits",
    "exceeded your current quota, please check your plan",
    "quota exceeded for quota metric 'generate requests per day'",
];

/// Error texts for a rejected key.
const AUTH: [&str; 11] = [
    "authentication_error",
    "permission_error",
    "invalid_api_key",
    "incorrect api key",
    "api key not valid",
    "api_key_invalid",
    "unauthenticated",
    "accessdeniedexception", // Amazon, and the next three
    "expiredtoken",
    "unrecognizedclientexception",
    "invalidsignatureexception",
];

/// Error texts for rate limits.
const BUSY: [&str; 5] = [
    "rate_limit",
    "rate limit",
    "resource_exhausted",
    "too many requests",
    "throttlingexception", // Amazon
];

/// Error texts for server errors.
const SERVER_FAILURE: [&str; 15] = [
    "overloaded",
    "server_error",
    "api_error",
    "timeout_error",
    "internal",
    "unavailable",
    "server_is_overloaded",
    "deadline_exceeded",
    "provider returned error",
    "engine_overloaded",
    "insufficient_system_resource",
    "modelstreamerrorexception", // Amazon, and the next three
    "modeltimeoutexception",
    "modelerrorexception",
    "modelnotreadyexception",
];

/// Error texts for requests rejected because of their content.
const REFUSED: [&str; 5] =
    ["content_filter", "content_policy", "responsibleaipolicy", "moderation", "safety_policy"];

/// Error texts for requests with a call without a result, or a result without a call.
const UNPAIRED: [&str; 8] = [
    "`tool_use` ids were found without `tool_result`", // Anthropic
    "unexpected `tool_use_id` found in `tool_result`", // Anthropic
    "must be followed by tool messages",               // OpenAI, and many who copy it
    "must be a response to a prec",                    // OpenAI, which misspells the rest
    "no tool output found for function call",          // OpenAI, Responses
    "no tool call found for function call output",     // OpenAI, Responses
    "number of function response parts is equal",      // Gemini
    "not the same number of function calls",           // Mistral
];

/// Returns whether the provider misses the result of a call. Conversations always have all results, so this is a
/// defect, or an intermediate server has changed the request.
pub(crate) fn is_unpaired(message: &str) -> bool {
    let message = message.to_lowercase();
    UNPAIRED.iter().any(|text| message.contains(text))
}

/// Error texts of providers that could not parse the output of the model; a retry may help.
const UNPARSABLE_OUTPUT: [&str; 2] = ["tool_use_failed", "output_parse_failed"];

/// Texts of bad requests for a model that the provider does not have. Other providers return status 404.
const MISSING_MODEL: [&str; 5] = [
    "model_not_found",              // OpenAI, and many who copy it
    "is not a valid model id",      // OpenRouter
    "invalid model name",           // LiteLLM
    "provided model identifier is", // Bedrock
    "invalid_model",                // Mistral
];

/// Returns whether a provider rejects a request because it does not have the model. A missing path is a different
/// error.
pub(crate) fn is_missing_model(status: u16, error: &ApiError) -> bool {
    let words = format!("{} {} {}", error.kind, error.code, error.message).to_lowercase();
    match status {
        404 => words.contains("model") || words.contains("deployment"),
        400 | 422 => MISSING_MODEL.iter().any(|text| words.contains(text)),
        _ => false,
    }
}

/// Returns the kind of fault for an error text, the most reliable first; `None` for unknown text.
pub(crate) fn kind_of_text(error: &ApiError) -> Option<FaultKind> {
    let message = error.message.to_lowercase();
    let words = format!("{} {} {message}", error.kind, error.code);
    let says = |known: &[&str]| known.iter().any(|text| words.contains(text));
    // A limit of tokens per minute is not a limit of the context.
    let is_rate = says(&BUSY) || words.contains("per minute");
    let is_overflow = OVERFLOW.iter().any(|text| {
        words.contains(text) && (*text != "exceeds the limit of" || words.contains("token"))
    });
    let labels = format!("{} {}", error.kind, error.code);
    let labelled = |known: &[&str]| known.iter().any(|text| labels.contains(text));
    let client_error = [
        "invalid_request",
        "not_found",
        "invalid_argument",
        "invalid_prompt",
        "validationexception",
        "resourcenotfoundexception",
    ];
    let kinds = [
        (says(&QUOTA), FaultKind::Quota),
        (is_overflow && !is_rate, FaultKind::Overflow),
        (says(&AUTH), FaultKind::Auth),
        (says(&REFUSED), FaultKind::Refused),
        (is_rate, FaultKind::RateLimited),
        (labelled(&UNPARSABLE_OUTPUT), FaultKind::Protocol),
        (labelled(&SERVER_FAILURE) || message.contains("overloaded"), FaultKind::Server),
        (labelled(&client_error), FaultKind::Request),
    ];
    kinds.into_iter().find_map(|(is_it, kind)| is_it.then_some(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(json: &str) -> ApiError {
        ApiError::find(&serde_json::from_str(json).unwrap()).unwrap()
    }

    fn kind(json: &str) -> Option<FaultKind> {
        kind_of_text(&find(json))
    }

    #[test]
    fn every_error_shape_is_parsed() {
        for json in [
            r#"{"error":{"message":"no","type":"t","code":"c"}}"#,
            r#"{"error":{"message":"no"},"type":"t","code":"c"}"#,
            r#"[{"error":{"message":"no","status":"T","code":"c"}}]"#,
            r#"{"object":"error","message":"no","type":"T","code":"c"}"#,
            r#"{"detail":[{"msg":"no","type":"t"}],"code":"c"}"#,
        ] {
            let ApiError { message, kind, code, .. } = find(json);
            assert_eq!((&*message, &*kind, &*code), ("no", "t", "c"), "{json}");
        }
        assert_eq!(find(r#"{"error":"no"}"#).message, "no");
        assert_eq!(find(r#"{"error":{"code":429,"message":"no"}}"#).status, Some(429));
        assert_eq!(ApiError::find(&serde_json::json!({"choices": [], "error": null})), None);
    }

    /// Fault L11: the texts of all providers.
    #[test]
    fn every_context_overflow_message_is_recognized() {
        for message in [
            "prompt is too long: 213462 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
            "Your input exceeds the context window of this model. Please adjust your input.",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
            "Please reduce the length of the messages or completion.",
            "the request exceeds the available context size, try increasing it",
            "tokens to keep from the initial prompt is greater than the context length",
            "prompt token count of 9000 exceeds the limit of 8000",
            "invalid params, context window exceeds limit",
            "litellm.ContextWindowExceededError: litellm.BadRequestError: prompt is larger than the model",
            "Your request exceeded model token limit: 262144 (requested: 300000)",
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        ] {
            let error = ApiError { message: message.to_owned(), ..ApiError::default() };
            assert_eq!(kind_of_text(&error), Some(FaultKind::Overflow), "{message}");
        }
        assert_eq!(
            kind(r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#),
            Some(FaultKind::Overflow)
        );
    }

    #[test]
    fn a_tokens_per_minute_limit_is_not_an_overflow() {
        let message =
            "Request too large for gpt-4o: Limit 30000 tokens per minute, too many tokens";
        let error = ApiError { message: message.to_owned(), ..ApiError::default() };
        assert_eq!(kind_of_text(&error), Some(FaultKind::RateLimited));
    }

    /// Faults L14 and L34.
    #[test]
    fn error_text_determines_the_kind() {
        for (json, expected) in [
            (r#"{"error":{"message":"m","code":"insufficient_quota"}}"#, FaultKind::Quota),
            (r#"{"error":{"message":"m","type":"overloaded_error"}}"#, FaultKind::Server),
            (r#"{"error":{"message":"m","type":"rate_limit_error"}}"#, FaultKind::RateLimited),
            (r#"{"error":{"message":"m","type":"invalid_request_error"}}"#, FaultKind::Request),
            (r#"{"error":{"message":"m","type":"authentication_error"}}"#, FaultKind::Auth),
            (r#"{"error":{"message":"m","code":"content_filter"}}"#, FaultKind::Refused),
            (r#"{"error":{"message":"m","status":"UNAVAILABLE"}}"#, FaultKind::Server),
            (
                r#"{"error":{"message":"m","type":"invalid_request_error","code":"tool_use_failed"}}"#,
                FaultKind::Protocol,
            ),
        ] {
            assert_eq!(kind(json), Some(expected), "{json}");
        }
        assert_eq!(kind(r#"{"error":{"message":"strange"}}"#), None);
    }
}
