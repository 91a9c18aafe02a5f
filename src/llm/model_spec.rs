//! Which model, as the user names it.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::model_table::ModelTable;
use super::provider::Provider;
use crate::model::{did_you_mean, nearest};

/// Which model is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    /// A provider's model.
    Remote {
        /// The provider.
        provider: Provider,
        /// The name that the provider knows it by.
        name: String,
    },
    /// A script that is played back.
    Scripted(PathBuf),
    /// A recording that is played back.
    Replay(PathBuf),
}

/// Why a text names no model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelSpecError {
    /// Nothing is named.
    #[error("no model is named")]
    Empty,
    /// The word before the slash is no provider.
    #[error("'{provider}' in '{text}' is no provider{}; there are {}", provider_suggestion(provider), provider_names().join(", "))]
    UnknownProvider {
        /// The word.
        provider: String,
        /// What was given.
        text: String,
    },
    /// The name stands alone, and the model table does not have it.
    #[error(
        "the model '{name}' is not in the model table{}; name its provider too, as in openai-chat/{name}",
        did_you_mean(.nearest.as_deref())
    )]
    UnknownName {
        /// The name.
        name: String,
        /// What the table has that is like it.
        nearest: Option<String>,
    },
}

impl ModelSpec {
    /// Reads `provider/name`, `scripted/FILE`, `replay/FILE`, a name or alias of the table, or, where the user gives an
    /// address, any name.
    ///
    /// # Errors
    ///
    /// Fails when that names no model.
    pub fn parse(
        text: &str,
        table: &ModelTable,
        has_address: bool,
    ) -> Result<Self, ModelSpecError> {
        let text = text.trim();
        let at_address = || Self::Remote { provider: Provider::OpenAiChat, name: text.to_owned() };
        let Some((word, name)) = text.split_once('/') else {
            return match table.find(text) {
                _ if text.is_empty() => Err(ModelSpecError::Empty),
                Some(found) => {
                    let (provider, name) = (found.provider, found.id.clone());
                    Ok(Self::Remote { provider, name })
                }
                None if has_address => Ok(at_address()),
                None => Err(ModelSpecError::UnknownName {
                    name: text.to_owned(),
                    nearest: table.suggest(text),
                }),
            };
        };
        match (word, Provider::from_name(word)) {
            _ if name.is_empty() => Err(ModelSpecError::Empty),
            ("scripted", _) => Ok(Self::Scripted(name.into())),
            ("replay", _) => Ok(Self::Replay(name.into())),
            (_, Some(provider)) => Ok(Self::Remote { provider, name: name.to_owned() }),
            // Names of open models have slashes of their own.
            (_, None) if has_address => Ok(at_address()),
            (provider, None) => Err(ModelSpecError::UnknownProvider {
                provider: provider.to_owned(),
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { provider, name } => write!(f, "{}/{name}", provider.name()),
            Self::Scripted(path) => write!(f, "scripted/{}", path.display()),
            Self::Replay(path) => write!(f, "replay/{}", path.display()),
        }
    }
}

fn provider_names() -> Vec<&'static str> {
    let names = Provider::ALL.into_iter().map(Provider::name);
    names.chain(["scripted", "replay"]).collect()
}

fn provider_suggestion(provider: &str) -> String {
    did_you_mean(nearest(provider, provider_names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, has_address: bool) -> Result<String, ModelSpecError> {
        ModelSpec::parse(text, &ModelTable::built_in(), has_address).map(|spec| spec.to_string())
    }

    #[test]
    fn every_documented_model_name_parses() {
        for text in [
            "openai/gpt-5.5",
            "openai-chat/gpt-4o",
            "openrouter/anthropic/claude-sonnet-5",
            "ollama/qwen3:8b",
            "scripted/a/b.toml",
            "replay//tmp/x.jsonl",
        ] {
            assert_eq!(parse(text, false).as_deref(), Ok(text));
        }
        assert_eq!(parse("gpt-5.5", false).as_deref(), Ok("openai/gpt-5.5"));
        assert_eq!(parse("sonnet", false).as_deref(), Ok("anthropic/claude-sonnet-5-5"));
        assert_eq!(parse("my-model", true).as_deref(), Ok("openai-chat/my-model"));
        assert_eq!(parse("meta/llama", true).as_deref(), Ok("openai-chat/meta/llama"));
    }

    #[test]
    fn an_unknown_model_name_is_reported_with_suggestions() {
        assert_eq!(parse(" ", false), Err(ModelSpecError::Empty));
        assert_eq!(parse("openai/", false), Err(ModelSpecError::Empty));
        let error = |text: &str| parse(text, false).unwrap_err().to_string();
        let expected = "the model 'my-model' is not in the model table; name its provider too, as in openai-chat/my-model";
        assert_eq!(error("my-model"), expected);
        let unknown = error("opnai/x");
        assert!(unknown.starts_with("'opnai' in 'opnai/x' is no provider, did you mean `openai`?"));
        assert!(unknown.contains("openai-chat, anthropic, gemini"), "{unknown}");
        assert!(!error("meta/llama").contains("did you mean"));
        assert!(error("sonet").contains("did you mean `sonnet`?"));
        assert!(error("gpt-5-mni").contains("did you mean `openai/gpt-5-mini`?"));
    }
}
