//! The differences between servers with Chat Completions.

/// The differences of a server.
#[derive(Debug)]
pub(crate) struct Quirks {
    /// The field for the output limit.
    pub(super) output_limit_field: &'static str,
    /// Whether a stream has the usage by default.
    pub(super) usage: UsageInStreams,
    /// The end of a stream.
    pub(super) stream_end: StreamEnd,
    /// How the deltas of several tool calls are distinguished.
    pub(super) call_indexing: CallIndexing,
    /// The form in which the reasoning is sent back.
    pub(super) reasoning_echo: ReasoningEcho,
    /// The role that may follow tool results.
    pub(super) after_tools: RoleAfterTools,
    /// The accepted ids of tool calls.
    pub(super) call_id_format: CallIdFormat,
    /// The form of a schema for the answer.
    pub(super) schema_format: SchemaFormat,
    /// Whether `prompt_cache_key` is supported.
    pub(super) has_cache_key: bool,
    /// The role of the system prompt.
    pub(super) system_role: &'static str,
}

/// Whether a stream has the usage by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageInStreams {
    /// Only with `stream_options`.
    OnRequest,
    /// Always; the option is an error.
    Always,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// `[DONE]`.
    Done,
    /// `[DONE]`, or the end of the body after a `finish_reason`. Forks of llama.cpp and older text-generation servers
    /// never send `[DONE]`, and the address does not identify the server.
    DoneOrFinish,
}

/// How the deltas of several tool calls are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallIndexing {
    /// By an index, counted from zero.
    Strict,
    /// By a growing index; if it is missing or constant, by the start of a new call.
    Loose,
}

/// The form in which a server expects its reasoning back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningEcho {
    /// No proxy.
    Omitted,
    /// The text, as `reasoning_content` of messages with tool calls, which are rejected without it.
    Content,
    /// The blocks of `reasoning_details`, unchanged.
    Details,
}

/// The role that may follow tool results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoleAfterTools {
    /// Anything.
    Any,
    /// Only the assistant.
    Assistant,
}

/// The accepted ids of tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallIdFormat {
    /// Any.
    Any,
    /// Nine ASCII letters and digits.
    NineAlphanumeric,
}

/// The form of a schema for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaFormat {
    /// As `response_format` of type `json_schema`.
    JsonSchema,
    /// As `response_format` of type `json_object`; the schema itself is in the prompt.
    JsonObject,
}

/// The most common server.
const DEFAULT: Quirks = Quirks {
    output_limit_field: "max_tokens",
    usage: UsageInStreams::OnRequest,
    stream_end: StreamEnd::DoneOrFinish,
    call_indexing: CallIndexing::Loose,
    reasoning_echo: ReasoningEcho::Omitted,
    after_tools: RoleAfterTools::Any,
    call_id_format: CallIdFormat::Any,
    schema_format: SchemaFormat::JsonSchema,
    has_cache_key: false,
    system_role: "system",
};

/// A server with its own model that follows OpenAI's protocol exactly.
const STRICT: Quirks =
    Quirks { stream_end: StreamEnd::Done, call_indexing: CallIndexing::Strict, ..DEFAULT };

static OPENAI: Quirks =
    Quirks { output_limit_field: "max_completion_tokens", has_cache_key: true, ..STRICT };
static OPENROUTER: Quirks =
    Quirks { stream_end: StreamEnd::Done, reasoning_echo: ReasoningEcho::Details, ..DEFAULT };
static GROQ: Quirks = Quirks { output_limit_field: "max_completion_tokens", ..STRICT };
static DEEPSEEK: Quirks = Quirks {
    reasoning_echo: ReasoningEcho::Content,
    schema_format: SchemaFormat::JsonObject,
    ..STRICT
};
static MISTRAL: Quirks = Quirks {
    usage: UsageInStreams::Always,
    stream_end: StreamEnd::Done,
    after_tools: RoleAfterTools::Assistant,
    call_id_format: CallIdFormat::NineAlphanumeric,
    ..DEFAULT
};
static XAI: Quirks = Quirks { stream_end: StreamEnd::Done, ..DEFAULT };
static UNKNOWN: Quirks = DEFAULT;

/// The servers that differ: the name of the provider, the suffix of the host, and the differences.
const KNOWN_SERVERS: [(&str, &str, &Quirks); 6] = [
    ("openai-chat", "api.openai.com", &OPENAI),
    ("openrouter", "openrouter.ai", &OPENROUTER),
    ("groq", "api.groq.com", &GROQ),
    ("deepseek", "api.deepseek.com", &DEEPSEEK),
    ("mistral", "api.mistral.ai", &MISTRAL),
    ("xai", "api.x.ai", &XAI),
];

impl Quirks {
    /// Returns the row for a host, or else for a provider.
    ///
    /// The host comes first: `openai-chat/…` with another base URL is another server.
    pub(crate) fn for_server(provider: &str, host: &str) -> &'static Self {
        let by_host = |(_, known, _): &&(&str, &str, &Quirks)| {
            host.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let by_name =
            |(name, _, _): &&(&str, &str, &Quirks)| *name == provider && *name != "openai-chat";
        let row = KNOWN_SERVERS.iter().find(by_host).or_else(|| KNOWN_SERVERS.iter().find(by_name));
        row.map_or(&UNKNOWN, |(_, _, row)| row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_address_before_its_name() {
        let row = |provider, host| Quirks::for_server(provider, host);
        assert!(std::ptr::eq(row("openai-chat", "api.openai.com"), &raw const OPENAI));
        assert!(std::ptr::eq(row("openai-chat", "eu.api.openai.com"), &raw const OPENAI));
        assert!(std::ptr::eq(row("openai-chat", "127.0.0.1"), &raw const UNKNOWN));
        assert!(std::ptr::eq(row("openai-chat", "api.mistral.ai"), &raw const MISTRAL));
        assert!(std::ptr::eq(row("deepseek", "127.0.0.1"), &raw const DEEPSEEK));
        assert!(std::ptr::eq(row("vllm", "notapi.openai.com.example"), &raw const UNKNOWN));
    }
}
