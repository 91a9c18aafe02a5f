//! The differences between servers with Chat Completions.

/// The differences of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent facts about a server
pub(super) struct Quirks {
    /// The field for the output limit.
    pub(super) output_limit_field: &'static str,
    /// Whether a stream always contains the usage, and the server rejects `stream_options`.
    pub(super) always_has_usage: bool,
    /// Whether a stream is complete only with `[DONE]`, rather than at the end of the body after a `finish_reason`.
    /// Forks of llama.cpp and older text-generation servers never send `[DONE]`, and the address does not identify the
    /// server.
    pub(super) needs_done: bool,
    /// Whether tool calls have indexes, counted from zero. Otherwise indexes only increase; if they are missing or
    /// constant, a call is recognized by its start.
    pub(super) has_strict_indexes: bool,
    /// The form in which reasoning is sent back.
    pub(super) reasoning_echo: ReasoningEcho,
    /// Whether only the assistant may follow tool results.
    pub(super) needs_assistant_after_tools: bool,
    /// Whether the ids of tool calls must consist of nine ASCII letters and digits.
    pub(super) needs_short_call_ids: bool,
    /// Whether `response_format` may be `json_schema`. Otherwise it is `json_object`, and the schema is in the prompt.
    pub(super) has_json_schema: bool,
    /// Whether `prompt_cache_key` is supported.
    pub(super) has_cache_key: bool,
    /// Whether the effort is in a `reasoning` object, rather than in `reasoning_effort`.
    pub(super) has_reasoning_object: bool,
    /// The role of the system prompt.
    pub(super) system_role: &'static str,
}

/// The form in which a server expects its reasoning back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningEcho {
    /// The server expects no reasoning.
    Omitted,
    /// The text, as `reasoning_content` of messages with tool calls, which are rejected without it.
    Content,
    /// The blocks of `reasoning_details`, unchanged.
    Details,
}

/// The quirks of the most common servers.
const DEFAULT: Quirks = Quirks {
    output_limit_field: "max_tokens",
    always_has_usage: false,
    needs_done: false,
    has_strict_indexes: false,
    reasoning_echo: ReasoningEcho::Omitted,
    needs_assistant_after_tools: false,
    needs_short_call_ids: false,
    has_json_schema: true,
    has_cache_key: false,
    has_reasoning_object: false,
    system_role: "system",
};

/// The quirks of a server with its own model that follows OpenAI's protocol exactly.
const STRICT: Quirks = Quirks { needs_done: true, has_strict_indexes: true, ..DEFAULT };

/// The servers that differ: the name of the provider, the suffix of the host, and the quirks.
const KNOWN_SERVERS: [(&str, &str, Quirks); 7] = [
    (
        "openai-chat",
        "api.openai.com",
        Quirks { output_limit_field: "max_completion_tokens", has_cache_key: true, ..STRICT },
    ),
    (
        "azure-chat",
        "openai.azure.com",
        Quirks { output_limit_field: "max_completion_tokens", ..DEFAULT },
    ),
    (
        "openrouter",
        "openrouter.ai",
        Quirks {
            needs_done: true,
            reasoning_echo: ReasoningEcho::Details,
            has_reasoning_object: true,
            ..DEFAULT
        },
    ),
    ("groq", "api.groq.com", Quirks { output_limit_field: "max_completion_tokens", ..STRICT }),
    (
        "deepseek",
        "api.deepseek.com",
        Quirks { reasoning_echo: ReasoningEcho::Content, has_json_schema: false, ..STRICT },
    ),
    (
        "mistral",
        "api.mistral.ai",
        Quirks {
            always_has_usage: true,
            needs_done: true,
            needs_assistant_after_tools: true,
            needs_short_call_ids: true,
            ..DEFAULT
        },
    ),
    ("xai", "api.x.ai", Quirks { needs_done: true, ..DEFAULT }),
];

impl Quirks {
    /// Returns the quirks for a host, or else for a provider.
    ///
    /// The host takes precedence, since `openai-chat/…` with another base URL means another server.
    pub(super) fn for_server(provider: &str, host: &str) -> Self {
        let by_host = |(_, known, _): &&(&str, &str, Self)| {
            host.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let by_name =
            |(name, _, _): &&(&str, &str, Self)| *name == provider && *name != "openai-chat";
        let row = KNOWN_SERVERS.iter().find(by_host).or_else(|| KNOWN_SERVERS.iter().find(by_name));
        row.map_or(DEFAULT, |(_, _, row)| *row)
    }
}

impl Default for Quirks {
    fn default() -> Self {
        DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_address_before_its_name() {
        let row = |provider, host| Quirks::for_server(provider, host);
        let known = |name| Quirks::for_server(name, "127.0.0.1");
        assert_eq!(row("openai-chat", "api.openai.com"), KNOWN_SERVERS[0].2);
        assert_eq!(row("openai-chat", "eu.api.openai.com"), KNOWN_SERVERS[0].2);
        assert_eq!(row("openai-chat", "127.0.0.1"), DEFAULT);
        assert_eq!(row("openai-chat", "api.mistral.ai"), known("mistral"));
        assert_eq!(known("deepseek").reasoning_echo, ReasoningEcho::Content);
        assert_eq!(row("vllm", "notapi.openai.com.example"), DEFAULT);
    }
}
