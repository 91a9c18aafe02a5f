//! The providers that are known by name: their wire, their address, and where their key is found.

/// A provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// OpenAI, by its Responses interface.
    OpenAi,
    /// OpenAI's Chat Completions, and whoever speaks it at an address of the user's.
    OpenAiChat,
    /// Anthropic.
    Anthropic,
    /// Google's Gemini.
    Gemini,
    /// A local Ollama.
    Ollama,
    /// OpenRouter.
    OpenRouter,
    /// Groq.
    Groq,
    /// DeepSeek.
    DeepSeek,
    /// Mistral.
    Mistral,
    /// xAI.
    Xai,
    /// A local llama.cpp server.
    LlamaCpp,
    /// A vLLM server.
    Vllm,
}

/// Which wire format a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiFormat {
    Chat,
    Responses,
    Anthropic,
    Gemini,
}

/// What is known of a provider.
#[derive(Debug)]
pub(super) struct ProviderInfo {
    /// The name that stands before the slash.
    pub(super) name: &'static str,
    pub(super) api_format: ApiFormat,
    /// Its address.
    pub(super) base_url: &'static str,
    /// The variable that holds another address.
    pub(super) base_url_env: Option<&'static str>,
    /// The path that an address of the user's gets where it has none.
    pub(super) default_path: &'static str,
    /// The variables that hold its key, in order.
    pub(super) key_env: &'static [&'static str],
    /// Whether it answers without a key.
    pub(super) is_key_optional: bool,
}

impl Provider {
    /// Every provider.
    pub const ALL: [Self; 12] = [
        Self::OpenAi,
        Self::OpenAiChat,
        Self::Anthropic,
        Self::Gemini,
        Self::Ollama,
        Self::OpenRouter,
        Self::Groq,
        Self::DeepSeek,
        Self::Mistral,
        Self::Xai,
        Self::LlamaCpp,
        Self::Vllm,
    ];

    /// Returns the provider of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.name() == name)
    }

    /// Returns the name that stands before the slash of a model's name.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Returns what is known of it.
    pub(super) fn info(self) -> ProviderInfo {
        let hosted = |name, base, key_env| ProviderInfo {
            name,
            api_format: ApiFormat::Chat,
            base_url: base,
            base_url_env: None,
            default_path: "",
            key_env,
            is_key_optional: false,
        };
        let local = |name, base| ProviderInfo {
            is_key_optional: true,
            default_path: "/v1",
            ..hosted(name, base, &[])
        };
        match self {
            Self::OpenAi => ProviderInfo {
                api_format: ApiFormat::Responses,
                base_url_env: Some("OPENAI_BASE_URL"),
                ..hosted("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"])
            },
            Self::OpenAiChat => ProviderInfo {
                base_url_env: Some("OPENAI_BASE_URL"),
                ..hosted("openai-chat", "https://api.openai.com/v1", &["OPENAI_API_KEY"])
            },
            Self::Anthropic => ProviderInfo {
                api_format: ApiFormat::Anthropic,
                base_url_env: Some("ANTHROPIC_BASE_URL"),
                default_path: "/v1",
                ..hosted(
                    "anthropic",
                    "https://api.anthropic.com/v1",
                    &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
                )
            },
            Self::Gemini => ProviderInfo {
                api_format: ApiFormat::Gemini,
                base_url_env: Some("GEMINI_BASE_URL"),
                default_path: "/v1beta",
                ..hosted(
                    "gemini",
                    "https://generativelanguage.googleapis.com/v1beta",
                    &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
                )
            },
            Self::Ollama => ProviderInfo {
                base_url_env: Some("OLLAMA_HOST"),
                key_env: &["OLLAMA_API_KEY"],
                ..local("ollama", "http://127.0.0.1:11434/v1")
            },
            Self::OpenRouter => {
                hosted("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"])
            }
            Self::Groq => hosted("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"]),
            Self::DeepSeek => hosted("deepseek", "https://api.deepseek.com", &["DEEPSEEK_API_KEY"]),
            Self::Mistral => hosted("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"]),
            Self::Xai => hosted("xai", "https://api.x.ai/v1", &["XAI_API_KEY"]),
            Self::LlamaCpp => local("llama-cpp", "http://127.0.0.1:8080/v1"),
            Self::Vllm => local("vllm", "http://127.0.0.1:8000/v1"),
        }
    }
}
