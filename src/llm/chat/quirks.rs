//! How servers that speak Chat Completions differ.

/// How a server differs from the others.
#[derive(Debug)]
pub(crate) struct Quirks {
    /// The field that limits the output.
    pub(super) output_limit: &'static str,
    /// How the numbers of tokens get into a stream.
    pub(super) usage: UsageInStreams,
    /// What ends a stream.
    pub(super) end: End,
    /// How pieces of tool calls are told apart.
    pub(super) indexes: Indexes,
    /// Which form of its reasoning it wants back.
    pub(super) reasoning: Reasoning,
    /// What may follow on tool results.
    pub(super) after_tools: AfterTools,
    /// Which ids of tool calls it accepts.
    pub(super) ids: Ids,
    /// How a schema for the answer is given.
    pub(super) schema: Schema,
    /// Whether it knows `prompt_cache_key`.
    pub(super) cache_key: bool,
    /// The role of the system prompt.
    pub(super) system: &'static str,
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
pub(super) enum End {
    /// `[DONE]`.
    Done,
    /// `[DONE]`, or the end of the body after a `finish_reason`. Forks of llama.cpp and older text-generation servers
    /// never send `[DONE]`, and an address does not tell who is behind it.
    DoneOrFinish,
}

/// How pieces of tool calls are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Indexes {
    /// By an index that counts from zero.
    Strict,
    /// By an index that grows, or where there is none or always the same, by where a new call begins.
    Loose,
}

/// Which form of its reasoning a server wants back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reasoning {
    /// None.
    Dropped,
    /// The text, as `reasoning_content` of the messages with tool calls; without it the request is refused.
    Content,
    /// The blocks of `reasoning_details`, unchanged.
    Details,
}

/// What may follow on tool results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterTools {
    /// Anything.
    Anyone,
    /// The assistant only.
    Assistant,
}

/// Which ids of tool calls a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    /// Any.
    Any,
    /// Nine letters and digits.
    Nine,
}

/// How a schema for the answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schema {
    /// As `response_format` of type `json_schema`.
    JsonSchema,
    /// As `response_format` of type `json_object`; the schema itself is in the prompt.
    JsonObject,
}

/// What most servers do.
const USUAL: Quirks = Quirks {
    output_limit: "max_tokens",
    usage: UsageInStreams::OnRequest,
    end: End::DoneOrFinish,
    indexes: Indexes::Loose,
    reasoning: Reasoning::Dropped,
    after_tools: AfterTools::Anyone,
    ids: Ids::Any,
    schema: Schema::JsonSchema,
    cache_key: false,
    system: "system",
};

/// What a server of its own kind that keeps to OpenAI's protocol does.
const STRICT: Quirks = Quirks { end: End::Done, indexes: Indexes::Strict, ..USUAL };

static OPENAI: Quirks = Quirks { output_limit: "max_completion_tokens", cache_key: true, ..STRICT };
static OPENROUTER: Quirks = Quirks { end: End::Done, reasoning: Reasoning::Details, ..USUAL };
static GROQ: Quirks = Quirks { output_limit: "max_completion_tokens", ..STRICT };
static DEEPSEEK: Quirks =
    Quirks { reasoning: Reasoning::Content, schema: Schema::JsonObject, ..STRICT };
static MISTRAL: Quirks = Quirks {
    usage: UsageInStreams::Always,
    end: End::Done,
    after_tools: AfterTools::Assistant,
    ids: Ids::Nine,
    ..USUAL
};
static XAI: Quirks = Quirks { end: End::Done, ..USUAL };
static UNKNOWN: Quirks = USUAL;

/// The servers with a row of their own: the name as which users know them, a part of their host's name, and the row.
const TABLE: [(&str, &str, &Quirks); 9] = [
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
    pub(crate) fn of(provider: &str, host: &str) -> &'static Self {
        let by_host = |(_, known, _): &&(&str, &str, &Quirks)| {
            !known.is_empty()
                && host
                    .strip_suffix(known)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let by_name =
            |(name, _, _): &&(&str, &str, &Quirks)| *name == provider && *name != "openai-chat";
        let row = TABLE.iter().find(by_host).or_else(|| TABLE.iter().find(by_name));
        row.map_or(&UNKNOWN, |(_, _, row)| row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_address_before_its_name() {
        let row = |provider, host| Quirks::of(provider, host);
        assert!(std::ptr::eq(row("openai-chat", "api.openai.com"), &raw const OPENAI));
        assert!(std::ptr::eq(row("openai-chat", "eu.api.openai.com"), &raw const OPENAI));
        assert!(std::ptr::eq(row("openai-chat", "127.0.0.1"), &raw const UNKNOWN));
        assert!(std::ptr::eq(row("openai-chat", "api.mistral.ai"), &raw const MISTRAL));
        assert!(std::ptr::eq(row("deepseek", "127.0.0.1"), &raw const DEEPSEEK));
        assert!(std::ptr::eq(row("vllm", "notapi.openai.com.example"), &raw const UNKNOWN));
    }
}
