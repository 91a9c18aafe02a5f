//! The names of models.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::model_table::ModelTable;
use super::provider::{COMPATIBLE, PROVIDERS, Provider};
use crate::types::{did_you_mean, nearest, nearest_within};

/// A model as named by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    /// A model of a provider.
    Remote {
        /// The provider.
        provider: &'static Provider,
        /// The provider's name for the model.
        name: String,
    },
    /// A script to play.
    Scripted(PathBuf),
    /// A recording to replay.
    Replay(PathBuf),
}

/// An invalid name of a model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelSpecError {
    /// The name is empty.
    #[error("the name of the model is empty; write PROVIDER/NAME, as in openai/gpt-5.5")]
    Empty,
    /// The word before the slash is not a provider.
    #[error("unknown provider '{provider}' in '{text}'{}; known providers: {}", provider_suggestion(provider), model_prefixes().join(", "))]
    UnknownProvider {
        /// The word before the slash.
        provider: String,
        /// The whole name.
        text: String,
    },
    /// A name without a provider that is not in the model table.
    #[error("unknown model '{name}'{}", did_you_mean(.nearest.as_deref()))]
    UnknownName {
        /// The unknown name.
        name: String,
        /// The most similar name in the table.
        nearest: Option<String>,
    },
}

impl ModelSpec {
    /// Parses `provider/name`, `scripted/FILE`, `replay/FILE`, or a name or alias of the table. If the user gives a
    /// base URL, any other name is a model there, unless it begins with a misspelled provider.
    ///
    /// # Errors
    ///
    /// Fails for any other text.
    pub fn parse(
        text: &str,
        table: &ModelTable,
        has_address: bool,
    ) -> Result<Self, ModelSpecError> {
        let text = table.resolve_alias(text.trim());
        let at_address = || Self::Remote { provider: &COMPATIBLE, name: text.to_owned() };
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
            // Names of open models may contain slashes.
            (_, None) if has_address && !is_misspelled_provider(word) => Ok(at_address()),
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

fn model_prefixes() -> Vec<&'static str> {
    let names = PROVIDERS.iter().map(Provider::name);
    names.chain(["scripted", "replay"]).collect()
}

/// Returns whether a word is the name of a provider with one wrong character, rather than the publisher of an open
/// model.
fn is_misspelled_provider(word: &str) -> bool {
    let nearest = nearest_within(word, model_prefixes(), 1);
    nearest.is_some_and(|provider| !provider.eq_ignore_ascii_case(word))
}

fn provider_suggestion(provider: &str) -> String {
    did_you_mean(nearest(provider, model_prefixes()))
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
        for open in ["meta/llama", "meta-llama/llama-3", "mistralai/m", "deepseek-ai/r", "Groq/x"] {
            assert_eq!(parse(open, true), Ok(format!("openai-chat/{open}")));
        }
    }

    /// The model need not be in the table.
    #[test]
    fn an_alias_leads_to_any_model() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prices.toml");
        std::fs::write(&file, "[aliases]\nlocal = \"openai-chat/mine\"\n").unwrap();
        let table = ModelTable::built_in().with_file(&file).unwrap();
        let spec = ModelSpec::parse("local", &table, false).unwrap();
        assert_eq!(spec.to_string(), "openai-chat/mine");
    }

    #[test]
    fn an_unknown_model_name_is_reported_with_suggestions() {
        assert_eq!(parse(" ", false), Err(ModelSpecError::Empty));
        assert_eq!(parse("openai/", false), Err(ModelSpecError::Empty));
        let error = |text: &str| parse(text, false).unwrap_err().to_string();
        assert_eq!(error("my-model"), "unknown model 'my-model'");
        let unknown = error("opnai/x");
        assert!(
            unknown.starts_with("unknown provider 'opnai' in 'opnai/x', did you mean `openai`?")
        );
        assert!(unknown.contains("openai-chat, anthropic, gemini"), "{unknown}");
        assert!(!error("meta/llama").contains("did you mean"));
        // A base URL does not turn a misspelled provider into a model, unless the provider of the URL is named.
        assert_eq!(parse("opnai/x", true).unwrap_err().to_string(), unknown);
        assert_eq!(parse("openai-chat/opnai/x", true).as_deref(), Ok("openai-chat/opnai/x"));
        assert!(error("sonet").contains("did you mean `sonnet`?"));
        assert!(error("gpt-5-mni").contains("did you mean `openai/gpt-5-mini`?"));
    }
}
