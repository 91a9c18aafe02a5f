//! How servers that speak Chat Completions differ.

/// How a server differs from the others.
#[derive(Debug)]
pub(crate) struct Quirks {
    /// The field that limits the output.
    pub(super) output_limit_field: &'static str,
    /// How the numbers of tokens get into a stream.
    pub(super) usage: UsageInStreams,
    /// What ends a stream.
    pub(super) stream_end: StreamEnd,
    /// How pieces of tool calls are told apart.
    pub(super) call_indexing: CallIndexing,
    /// Which form of its reasoning it wants back.
    pub(super) reasoning_echo: ReasoningEcho,
    /// What may follow on tool results.
    pub(super) after_tools: RoleAfterTools,
    /// Which ids of tool calls it accepts.
    pub(super) call_id_format: CallIdFormat,
    /// How a schema for the answer is given.
    pub(super) schema_format: SchemaFormat,
    /// Whether it knows `prompt_cache_key`.
    pub(super) has_cache_key: bool,
    /// The role of the system prompt.
    pub(super) system_role: &'static str,
}

/// How the numbers of tokens get into a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageInStreams {
    /// They have to be asked for, by `stream_options`.
    OnRequest,
    /// They come by themselves, and asking is an error.
    Always,
}

/// What ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// `[DONE]`.
    Done,
    /// `[DONE]`, or the end of the body after a `finish_reason`. Forks of llama.cpp and older text-generation servers
    /// never send `[DONE]`, and an address does not tell who is behind it.
    DoneOrFinish,
}

/// How pieces of tool calls are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallIndexing {
    /// By an index that counts from zero.
    Strict,
    /// By an index that grows, or where there is none or always the same, by where a new call begins.
    Loose,
}

/// Which form of its reasoning a server wants back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningEcho {
    /// None.
    Omitted,
    /// The text, as `reasoning_content` of the messages with tool calls; without it the request is refused.
    Content,
    /// The blocks of `reasoning_details`, unchanged.
    Details,
}

/// What may follow on tool results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoleAfterTools {
    /// Anything.
    Any,
    /// The assistant only.
    Assistant,
}

/// Which ids of tool calls a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallIdFormat {
    /// Any.
    Any,
    /// Nine letters and digits.
    NineAlphanumeric,
}

/// How a schema for the answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaFormat {
    /// As `response_format` of type `json_schema`.
    JsonSchema,
    /// As `response_format` of type `json_object`; the schema itself is in the prompt.
    JsonObject,
}

/// What most servers do.
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

/// What a server of its own kind that keeps to OpenAI's protocol does.
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

/// The servers with a row of their own: the name as which users know them, a part of their host's name, and the row.
const KNOWN_SERVERS: [(&str, &str, &Quirks); 9] = [
    ("openai-chat", "api.openai.com", &OPENAI),
    ("openrouter", "openrouter.ai", &OPENROUTER),
    ("groq", "api.groq.com", &GROQ),
    ("deepseek", "api.deepseek.com", &DEEPSEEK),
    ("mistral", "api.mistral.ai", &MISTRAL),
    ("xai", "api.x.ai", &XAI),
    // What these do is the usual; they are named so that nobody looks for them in vain.
    ("ollama", "ollama.com", &UNKNOWN),
    ("llama-cpp", "", &UNKNOWN),
    ("vllm", "", &UNKNOWN),
];

impl Quirks {
    /// Returns the row of the server behind a host, or else of a provider's name.
    ///
    /// An address of the user's own says more than the name: `openai-chat/…` with another address is another server.
    pub(crate) fn for_server(provider: &str, host: &str) -> &'static Self {
        let by_host = |(_, known, _): &&(&str, &str, &Quirks)| {
            !known.is_empty()
                && host
                    .strip_suffix(known)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
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
