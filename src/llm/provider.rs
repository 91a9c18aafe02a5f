//! The providers, each with its API format, address and keys.

use std::fmt::Write as _;

use super::wire::{ApiFormat, Cloud};
use super::{anthropic, bedrock, gemini, openai_chat, openai_responses, vertex};

/// A provider of models.
#[derive(Debug)]
pub struct Provider {
    name: &'static str,
    pub(super) format: &'static ApiFormat,
    /// The cloud, if the provider serves models of others with its own differences.
    pub(super) cloud: Option<Cloud>,
    /// The base URL, unless the user sets another one; empty if only the user can know it. A name in braces stands for
    /// the value of this variable.
    pub base_url: &'static str,
    /// The variable with another base URL.
    pub base_url_variable: Option<&'static str>,
    /// The path for a base URL that the user gives without a path.
    pub(super) default_path: &'static str,
    /// The port for a base URL that the user gives without scheme and port.
    pub(super) default_port: Option<u16>,
    /// The variables that may hold the key, in the order in which they are read.
    pub key_variables: &'static [&'static str],
    pub(super) is_key_optional: bool,
    /// The header for the key; `None` for that of the API format.
    pub(super) key_header: Option<&'static str>,
    /// Whether the server silently drops the beginning of a request that exceeds its context window.
    pub(super) may_truncate: bool,
}

/// The providers, in the order of the documentation. A provider with a known API format is a single row here.
pub static PROVIDERS: [Provider; 16] = [
    Provider {
        format: &openai_responses::FORMAT,
        base_url_variable: Some("OPENAI_BASE_URL"),
        ..hosted("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"])
    },
    COMPATIBLE,
    Provider {
        format: &anthropic::FORMAT,
        base_url_variable: Some("ANTHROPIC_BASE_URL"),
        ..hosted(
            "anthropic",
            "https://api.anthropic.com/v1",
            &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
        )
    },
    Provider {
        format: &gemini::FORMAT,
        base_url_variable: Some("GEMINI_BASE_URL"),
        default_path: "/v1beta",
        ..hosted(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta",
            &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        )
    },
    Provider { format: &openai_responses::FORMAT, ..azure("azure") },
    azure("azure-chat"),
    Provider {
        base_url_variable: Some("OLLAMA_HOST"),
        default_port: Some(11434),
        key_variables: &["OLLAMA_API_KEY"],
        may_truncate: true,
        ..local("ollama", "http://127.0.0.1:11434/v1")
    },
    Provider {
        format: &bedrock::FORMAT,
        cloud: Some(Cloud::Bedrock),
        base_url_variable: Some("AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
        ..hosted("bedrock", bedrock::BASE_URL, &bedrock::KEY_VARIABLES)
    },
    Provider {
        format: &vertex::FORMAT,
        cloud: Some(Cloud::Vertex),
        base_url_variable: Some("GOOGLE_VERTEX_BASE_URL"),
        default_path: vertex::DEFAULT_PATH,
        ..hosted("vertex", vertex::BASE_URL, &["VERTEX_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"])
    },
    hosted("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"]),
    hosted("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"]),
    hosted("deepseek", "https://api.deepseek.com", &["DEEPSEEK_API_KEY"]),
    hosted("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"]),
    hosted("xai", "https://api.x.ai/v1", &["XAI_API_KEY"]),
    local("llama-cpp", "http://127.0.0.1:8080/v1"),
    local("vllm", "http://127.0.0.1:8000/v1"),
];

/// OpenAI's Chat Completions, and any compatible server at a base URL from the user.
pub(super) const COMPATIBLE: Provider = Provider {
    base_url_variable: Some("OPENAI_BASE_URL"),
    ..hosted("openai-chat", "https://api.openai.com/v1", &["OPENAI_API_KEY"])
};

/// The variable with the address of an Azure resource.
const AZURE_VARIABLE: &str = "AZURE_OPENAI_ENDPOINT";

/// Returns Azure OpenAI with Chat Completions. Models are named by deployment, and each user has their own address.
const fn azure(name: &'static str) -> Provider {
    Provider {
        base_url_variable: Some(AZURE_VARIABLE),
        default_path: "/openai/v1",
        key_header: Some("api-key"),
        ..hosted(name, "", &["AZURE_OPENAI_API_KEY"])
    }
}

/// Returns a provider of Chat Completions that requires a key.
const fn hosted(
    name: &'static str,
    base_url: &'static str,
    key_variables: &'static [&'static str],
) -> Provider {
    Provider {
        name,
        format: &openai_chat::FORMAT,
        cloud: None,
        base_url,
        base_url_variable: None,
        default_path: "",
        default_port: None,
        key_variables,
        is_key_optional: false,
        key_header: None,
        may_truncate: false,
    }
}

/// Returns a provider of Chat Completions on this machine.
const fn local(name: &'static str, base_url: &'static str) -> Provider {
    Provider { default_path: "/v1", is_key_optional: true, ..hosted(name, base_url, &[]) }
}

impl Provider {
    /// Returns the provider with this name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.name == name)
    }

    /// Returns whether the provider is Azure, where each user has their own address.
    pub(super) fn is_azure(&self) -> bool {
        self.base_url_variable == Some(AZURE_VARIABLE)
    }

    /// Returns the name of the provider, as in `provider/model`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// Returns the names of the providers for help and documentation.
pub fn provider_names() -> String {
    PROVIDERS.each_ref().map(Provider::name).join(", ")
}

/// Returns the table of the providers in Markdown.
pub fn provider_table() -> String {
    let code = |text: &str| format!("`{text}`");
    let mut table = "| provider | key | API format | base URL |\n|---|---|---|---|\n".to_owned();
    for provider in &PROVIDERS {
        let keys: Vec<_> = provider.key_variables.iter().copied().map(code).collect();
        let keys = match keys.join(" or ") {
            none if none.is_empty() => "none".to_owned(),
            keys if provider.is_key_optional => format!("{keys}, optional"),
            keys => keys,
        };
        let address = match (provider.base_url, provider.base_url_variable) {
            ("", variable) => format!("`{}`", variable.unwrap_or("--api-base")),
            (url, Some(variable)) => format!("`{url}`, or `{variable}`"),
            (url, None) => format!("`{url}`"),
        };
        let (name, format) = (provider.name, provider.format.name);
        let _ = writeln!(table, "| `{name}` | {keys} | {format} | {address} |");
    }
    table
}

impl PartialEq for Provider {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Provider {}
