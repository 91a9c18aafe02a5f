//! The model table: prices, context windows, output limits and aliases.
//!
//! The table is part of the release, and has a date; a file of the user overrides it. Unknown models have no price.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;
use thiserror::Error;

use super::model_spec::ModelSpec;
use super::provider::Provider;
use crate::types::{Effort, LongInputPrice, MicroUsd, Price, Tokens, nearest, nearest_within};
use crate::workspace::image::{self, ImageLimits};
use crate::workspace::read_input;

/// The table of this release.
const BUILT_IN: &str = include_str!("table.toml");

/// The known models and their aliases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelTable {
    date: String,
    aliases: BTreeMap<String, String>,
    rows: Vec<ModelInfo>,
}

/// A known model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// The provider.
    pub provider: &'static Provider,
    /// The provider's name for the model.
    pub id: String,
    /// The price; `None` if unknown.
    pub price: Option<Price>,
    /// The context window in tokens; `None` if unknown.
    pub window: Option<Tokens>,
    /// The output limit in tokens; `None` if unknown.
    pub max_output: Option<Tokens>,
    /// The provider's words for its reasoning efforts, lowest first; `None` if unknown.
    pub efforts: Option<Vec<String>>,
    /// Whether the model accepts images; `None` if unknown.
    pub images: Option<bool>,
}

/// The user's settings for a model. Missing values are taken from the table.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// The context window.
    pub window: Option<Tokens>,
    /// The output limit.
    pub max_output: Option<Tokens>,
    /// Prices in dollars per million tokens: `input`, `output`, `cached_input`, `cache_write`.
    pub price: BTreeMap<String, f64>,
    /// The provider's words for its reasoning efforts, lowest first.
    pub efforts: Option<Vec<String>>,
    /// Whether the model accepts images.
    pub images: Option<bool>,
}

/// An error while loading a model table: the file, and the reason with its position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ModelTableError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelTableFile {
    #[serde(default)]
    date: Option<String>,
    #[serde(default)]
    aliases: BTreeMap<String, String>,
    #[serde(default)]
    models: BTreeMap<String, BTreeMap<String, ModelRow>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelRow {
    window: Option<u64>,
    output: Option<u64>,
    price: Option<PriceRow>,
    long: Option<LongContextPriceRow>,
    efforts: Option<Vec<String>>,
    images: Option<bool>,
}

/// Prices in dollars per million tokens.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceRow {
    input: f64,
    output: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LongContextPriceRow {
    above: u64,
    input: f64,
    output: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
}

impl ModelTable {
    /// Returns the table of this release.
    pub fn built_in() -> Self {
        // A test parses the table, so that a release always has a valid one. Each section is parsed on its own: as a whole,
        // the table would take more memory than anything else at the start of a run.
        static PARSED: LazyLock<ModelTable> = LazyLock::new(|| {
            let mut table = ModelTable::default();
            for section in BUILT_IN.split("\n\n").filter_map(|it| ModelTable::parse(it).ok()) {
                table.rows.extend(section.rows);
                table.aliases.extend(section.aliases);
                table.date.push_str(&section.date);
            }
            table.rows.sort_by_key(|row| row.provider.name());
            table
        });
        PARSED.clone()
    }

    /// Returns the aliases with the names that they stand for.
    pub fn aliases(&self) -> &BTreeMap<String, String> {
        &self.aliases
    }

    /// Returns the table with the rows and aliases of a file added; these take precedence.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or for an invalid table.
    pub fn with_file(mut self, path: &Path) -> Result<Self, ModelTableError> {
        let shown = path.display();
        let text = read_input(path)
            .map_err(|error| ModelTableError(format!("could not read {shown}: {error}")))?;
        let over =
            Self::parse(&text).map_err(|cause| ModelTableError(format!("{shown}: {cause}")))?;
        let rows: Vec<ModelInfo> = over.rows.into_iter().map(|row| self.complete(row)).collect();
        self.rows.retain(|row| !rows.iter().any(|new| new.is_same_model(row)));
        self.rows.extend(rows);
        self.aliases.extend(over.aliases);
        self.date = if over.date.is_empty() { self.date } else { over.date };
        Ok(self)
    }

    /// Returns the table with the user's settings for a model.
    ///
    /// # Errors
    ///
    /// Fails for an invalid price.
    pub fn with_model(
        mut self,
        model: &ModelSpec,
        facts: ModelFacts,
    ) -> Result<Self, ModelTableError> {
        let ModelSpec::Remote { provider, name } = model else { return Ok(self) };
        let ModelFacts { window, max_output, price, efforts, images } = facts;
        let price = match price.is_empty() {
            true => None,
            false => Some(PriceRow::from_fields(&price)?),
        };
        let (provider, id) = (*provider, name.clone());
        let row =
            self.complete(ModelInfo { provider, id, price, window, max_output, efforts, images });
        self.rows.retain(|known| !known.is_same_model(&row));
        self.rows.push(row);
        Ok(self)
    }

    /// Returns a row from the user, completed by the values of the table.
    fn complete(&self, row: ModelInfo) -> ModelInfo {
        let ModelInfo { provider, id, price, window, max_output, efforts, images } = row;
        let known = self.lookup(&ModelSpec::Remote { provider, name: id.clone() });
        ModelInfo {
            provider,
            id: if provider.name() == "anthropic" { id.replace('.', "-") } else { id },
            price: price.or_else(|| known?.price),
            window: window.or_else(|| known?.window),
            max_output: max_output.or_else(|| known?.max_output),
            efforts: efforts.or_else(|| known?.efforts.clone()),
            images: images.or_else(|| known?.images),
        }
    }

    /// Returns the models, beginning with those of the release.
    pub fn rows(&self) -> &[ModelInfo] {
        &self.rows
    }

    /// Returns whether the table has models of a provider itself.
    pub fn has_provider(&self, provider: &Provider) -> bool {
        self.rows.iter().any(|row| row.provider == provider)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: ModelTableFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut rows = Vec::new();
        for (word, models) in file.models {
            let provider = Provider::from_name(&word)
                .ok_or_else(|| format!("[models.{word}]: unknown provider '{word}'"))?;
            for (id, row) in models {
                let facts = row.into_info(provider, id.clone());
                rows.push(facts.ok_or_else(|| format!("invalid price of '{id}'"))?);
            }
        }
        Ok(Self { date: file.date.unwrap_or_default(), aliases: file.aliases, rows })
    }

    /// Returns the names that a user can give: the aliases, and the models with their providers.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        let models = self.rows.iter().map(|row| format!("{}/{}", row.provider.name(), row.id));
        self.aliases.keys().cloned().chain(models)
    }

    /// Returns the date of the last update (`2026-11-22`).
    pub fn date(&self) -> &str {
        &self.date
    }

    /// Returns the name that an alias stands for; any other name is returned unchanged.
    pub fn resolve_alias<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, String::as_str)
    }

    /// Returns the model with a name that does not include the provider.
    pub fn find(&self, name: &str) -> Option<&ModelInfo> {
        self.rows.iter().find(|row| row.id == name)
    }

    /// Returns the most similar name in the table: an alias, or `provider/name`.
    pub(super) fn suggest(&self, name: &str) -> Option<String> {
        let aliases = self.aliases.keys().map(String::as_str);
        let found = nearest(name, aliases.chain(self.rows.iter().map(|row| row.id.as_str())))?;
        let row = self.rows.iter().find(|row| row.id == found && has_same_numbers(name, found));
        let named = row.map(|row| format!("{}/{found}", row.provider.name()));
        named.or_else(|| self.aliases.contains_key(found).then(|| found.to_owned()))
    }

    /// Returns the model of the same provider that an unknown name probably misspells. A name with other numbers may be
    /// a newer model, and gets no suggestion.
    pub fn suggest_for(&self, model: &ModelSpec) -> Option<String> {
        let ModelSpec::Remote { provider, name } = model else { return None };
        let served = if provider.name() == "openai-chat" { "openai" } else { provider.name() };
        let ids =
            || self.rows.iter().filter(|row| row.provider.name() == served).map(|row| &*row.id);
        if ids().any(|id| id == name) {
            return None;
        }
        let found = nearest_within(name, ids().filter(|id| has_same_numbers(name, id)), 2)?;
        Some(format!("{}/{found}", provider.name()))
    }

    /// Returns the row of a model: the row with the same name, or else with the longest prefix of the name.
    pub fn lookup(&self, model: &ModelSpec) -> Option<&ModelInfo> {
        let ModelSpec::Remote { provider: asked, name: asked_name } = model else { return None };
        let (provider, name) = match (asked.name(), asked_name.split_once('/')) {
            // An Azure deployment is usually named after its model.
            ("openai-chat" | "azure" | "azure-chat", _) => ("openai", asked_name.as_str()),
            // OpenRouter has the prices of the original providers.
            ("openrouter", Some((vendor @ ("openai" | "anthropic"), name))) => (vendor, name),
            ("openrouter", Some(("google", name))) => ("gemini", name),
            ("openrouter", Some(("x-ai", name))) => ("xai", name),
            // The clouds serve the models of the original providers.
            ("bedrock", _) => match asked_name.rsplit_once("anthropic.") {
                Some((_, name)) => ("anthropic", name),
                None => ("bedrock", asked_name.as_str()),
            },
            ("vertex", _) if asked_name.starts_with("claude-") => {
                ("anthropic", asked_name.as_str())
            }
            ("vertex", _) => ("gemini", asked_name.as_str()),
            (provider, _) => (provider, asked_name.as_str()),
        };
        // OpenRouter writes versions with a dot, Anthropic with a hyphen.
        let name = match provider {
            "anthropic" => name.replace('.', "-"),
            _ => name.to_owned(),
        };
        // The user's row for this provider takes precedence.
        let own = self.longest_prefix(asked.name(), asked_name);
        own.filter(|_| asked.name() != provider).or_else(|| self.longest_prefix(provider, &name))
    }

    fn longest_prefix(&self, provider: &str, name: &str) -> Option<&ModelInfo> {
        let fits = |row: &&ModelInfo| {
            row.provider.name() == provider && name.strip_prefix(&row.id).is_some_and(is_variant)
        };
        self.rows.iter().filter(fits).max_by_key(|row| row.id.len())
    }
}

/// Returns the providers under whose names the models of a provider are looked up; see [`ModelTable::lookup`].
pub fn makers(provider: &Provider) -> &'static [&'static str] {
    match provider.name() {
        "openai-chat" | "azure" | "azure-chat" => &["openai"],
        "openrouter" => &["openai", "anthropic", "gemini", "xai"],
        "bedrock" => &["anthropic"],
        "vertex" => &["anthropic", "gemini"],
        _ => &[],
    }
}

/// Returns an example of a model name for a provider without models in the table.
pub fn example(provider: &Provider) -> &'static str {
    match provider.name() {
        "openai-chat" | "azure" | "azure-chat" => "gpt-5.5",
        "openrouter" => "anthropic/claude-sonnet-4.5",
        "bedrock" => "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "vertex" => "claude-sonnet-4-5@20250929",
        _ => "my-model",
    }
}

/// Returns whether a name with this suffix is a variant of the model: the suffix is a date or a word, but not another
/// version number.
fn is_variant(rest: &str) -> bool {
    let Some(word) = rest.strip_prefix(['-', ':', '@']) else { return rest.is_empty() };
    let first = word.split(['-', ':', '@']).next().unwrap_or_default();
    !(first.len() <= 2 && first.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether two names have the same digits.
fn has_same_numbers(name: &str, id: &str) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    digits(name) == digits(id)
}

/// The error if a model does not support an effort.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EffortError {
    /// The model has no efforts at all.
    #[error("the model has no setting for how much it reasons")]
    NoEfforts,
    /// The model has other efforts.
    #[error("the model has no effort '{asked}'; it has: {}", known.join(", "))]
    Missing {
        /// The requested effort, in the user's word.
        asked: &'static str,
        /// The supported efforts, in the user's words.
        known: Vec<&'static str>,
    },
}

impl ModelInfo {
    /// Returns whether the model accepts images.
    pub fn takes_images(&self) -> bool {
        self.images == Some(true)
    }

    /// Returns the provider's limits for images; `None` if the model accepts none.
    pub fn image_limits(&self) -> Option<&'static ImageLimits> {
        self.takes_images().then_some(match self.provider.name() {
            "anthropic" => &image::ANTHROPIC,
            "gemini" => &image::GEMINI,
            "xai" => &image::XAI,
            "mistral" => &image::MISTRAL,
            "groq" => &image::GROQ,
            "deepseek" => &image::DEEPSEEK,
            _ if self.id.contains("claude") => &image::ANTHROPIC,
            _ if self.id.contains("gemini") => &image::GEMINI,
            _ => &image::OPENAI,
        })
    }

    /// Returns the efforts of the model in the user's words; `None` if unknown.
    pub fn efforts(&self) -> Option<Vec<&'static str>> {
        self.efforts.as_ref()?;
        let has = |effort: &Effort| matches!(self.effort_word(*effort), Ok(Some(_)));
        Some(Effort::ALL.into_iter().filter(has).map(Effort::as_str).collect())
    }

    /// Returns the provider's word for an effort; `None` if the efforts of the model are unknown.
    ///
    /// # Errors
    ///
    /// Fails if the model does not support the effort.
    pub fn effort_word(&self, effort: Effort) -> Result<Option<&str>, EffortError> {
        let Some(words) = &self.efforts else { return Ok(None) };
        let word = |effort: Effort| match effort {
            Effort::Max => words.last().filter(|word| *word != Effort::None.as_str()),
            _ => words.iter().find(|word| *word == effort.as_str()),
        };
        match word(effort) {
            Some(word) => Ok(Some(word)),
            None if words.is_empty() => Err(EffortError::NoEfforts),
            None => Err(EffortError::Missing {
                asked: effort.as_str(),
                known: Effort::ALL
                    .into_iter()
                    .filter(|effort| word(*effort).is_some())
                    .map(Effort::as_str)
                    .collect(),
            }),
        }
    }

    fn is_same_model(&self, other: &Self) -> bool {
        (self.provider, &self.id) == (other.provider, &other.id)
    }
}

impl ModelRow {
    fn into_info(self, provider: &'static Provider, id: String) -> Option<ModelInfo> {
        let price = match (self.price, self.long) {
            (None, Some(_)) => return None,
            (None, None) => None,
            (Some(price), long) => Some(price.price(long)?),
        };
        let (window, max_output) = (self.window.map(Tokens), self.output.map(Tokens));
        let Self { efforts, images, .. } = self;
        Some(ModelInfo { provider, id, price, window, max_output, efforts, images })
    }
}

impl PriceRow {
    /// Returns the price with these fields.
    fn from_fields(fields: &BTreeMap<String, f64>) -> Result<Price, ModelTableError> {
        let known = ["input", "output", "cached_input", "cache_write"];
        let invalid = |what: &str| ModelTableError(format!("invalid price: {what}"));
        if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            let text = format!("unknown field '{name}'; it has {}", known.join(", "));
            return Err(invalid(&text));
        }
        let field = |name: &str| fields.get(name).copied();
        let row = Self {
            input: field("input").ok_or_else(|| invalid("`input` is missing"))?,
            output: field("output").ok_or_else(|| invalid("`output` is missing"))?,
            cached_input: field("cached_input"),
            cache_write: field("cache_write"),
        };
        row.price(None).ok_or_else(|| invalid("a number is negative or too large"))
    }

    pub(super) fn price(&self, long: Option<LongContextPriceRow>) -> Option<Price> {
        let input = micro_usd(self.input)?;
        let long = match long {
            None => None,
            Some(long) => Some(LongInputPrice {
                threshold: Tokens(long.above),
                input: micro_usd(long.input)?,
                output: micro_usd(long.output)?,
                cached_input: micro_usd(long.cached_input.unwrap_or(long.input))?,
                cache_write: match long.cache_write {
                    None => None,
                    Some(write) => Some(micro_usd(write)?),
                },
            }),
        };
        Some(Price {
            input,
            output: micro_usd(self.output)?,
            cached_input: self.cached_input.map_or(Some(input), micro_usd)?,
            cache_write: self.cache_write.map_or(Some(input), micro_usd)?,
            long_input: long,
        })
    }
}

fn micro_usd(dollars: f64) -> Option<u64> {
    MicroUsd::from_dollars(dollars).map(|micros| micros.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::provider::PROVIDERS;

    fn lookup(table: &ModelTable, model: &str) -> Option<(String, Option<u64>)> {
        let spec = ModelSpec::parse(model, table, false).unwrap();
        table.lookup(&spec).map(|row| (row.id.clone(), row.price.map(|price| price.input)))
    }

    fn found(model: &str) -> Option<(String, Option<u64>)> {
        lookup(&ModelTable::built_in(), model)
    }

    #[test]
    fn the_sections_of_the_table_are_the_table() {
        assert_eq!(ModelTable::built_in(), ModelTable::parse(BUILT_IN).unwrap());
    }

    #[test]
    fn the_table_of_this_release_can_be_read() {
        let table = ModelTable::parse(BUILT_IN).unwrap();
        assert!(table.rows.len() > 80);
        assert_eq!(table.date().len(), 10);
        assert!(table.aliases.values().all(|name| {
            let spec = ModelSpec::parse(name, &table, false).unwrap();
            table.lookup(&spec).is_some()
        }));
        for row in &table.rows {
            let price = row.price.unwrap();
            assert!(
                price.cached_input <= price.input && price.input <= price.cache_write,
                "{row:?}"
            );
            assert!(price.input <= price.output, "{row:?}");
            assert!(row.max_output <= row.window, "{row:?}");
        }
    }

    #[test]
    fn only_a_misspelled_name_gets_a_suggestion() {
        let table = ModelTable::built_in();
        let meant = |text: &str| table.suggest_for(&ModelSpec::parse(text, &table, false).unwrap());
        for (text, expected) in [
            ("openai/gpt-5-mni", "openai/gpt-5-mini"),
            ("openai-chat/gtp-4o", "openai-chat/gpt-4o"),
            ("anthropic/claude-sonet-5", "anthropic/claude-sonnet-5"),
            ("gemini/gemini-3.7-falsh", "gemini/gemini-3.7-flash"),
        ] {
            assert_eq!(meant(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "openai/gpt-5.5",
            "openai/gpt-5.5-2026-04-23",
            "openai/gpt-5.9",
            "openai/gpt-6-mini",
            "anthropic/claude-opus-6",
            "ollama/qwen3:8b",
            "openai/something-else",
            "scripted/a.toml",
        ] {
            assert_eq!(meant(text), None, "{text}");
        }
    }

    #[test]
    fn lookup_is_exact_and_then_by_longest_prefix() {
        let is = |id: &str, price| Some((id.to_owned(), Some(price)));
        assert_eq!(found("openai/gpt-4o"), is("gpt-4o", 2_500_000));
        assert_eq!(found("openai-chat/gpt-4o-2024-05-13"), is("gpt-4o-2024-05-13", 5_000_000));
        assert_eq!(found("openai/gpt-5.5-2026-04-23"), is("gpt-5.5", 5_000_000));
        assert_eq!(found("openai/gpt-5.5-pro-2026"), is("gpt-5.5-pro", 30_000_000));
        // Another version is another model.
        assert_eq!(found("anthropic/claude-opus-5-5"), is("claude-opus-5-5", 4_000_000));
        assert_eq!(found("anthropic/claude-opus-5-20260724"), is("claude-opus-5", 5_000_000));
        assert_eq!(found("anthropic/claude-opus-5-9"), None);
        assert_eq!(found("openrouter/anthropic/claude-opus-4.8"), is("claude-opus-4-8", 5_000_000));
        for name in [
            "bedrock/global.anthropic.claude-opus-4-8-20260301-v1:0",
            "bedrock/arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-4-8",
            "vertex/claude-opus-4-8@20260301",
        ] {
            assert_eq!(found(name), is("claude-opus-4-8", 5_000_000), "{name}");
        }
        assert_eq!(found("vertex/gemini-2.5-pro"), found("gemini/gemini-2.5-pro"));
        assert!(found("gemini/gemini-2.5-pro").is_some());
        assert_eq!(found("deepseek/deepseek-v4-pro"), is("deepseek-v4-pro", 1_320_000));
    }

    #[test]
    fn a_provider_without_rows_has_an_example_that_is_found_at_its_makers() {
        let table = ModelTable::built_in();
        for provider in PROVIDERS.iter().filter(|provider| !table.has_provider(provider)) {
            let spec = ModelSpec::Remote { provider, name: example(provider).to_owned() };
            let found = table.lookup(&spec).map(|info| info.provider.name());
            assert_eq!(found.is_some(), !makers(provider).is_empty(), "{spec}");
            assert!(found.is_none_or(|found| makers(provider).contains(&found)), "{spec}");
        }
    }

    #[test]
    fn an_effort_is_a_word_of_the_provider_or_refused() {
        let table = ModelTable::built_in();
        let word = |model: &str, effort| {
            let spec = ModelSpec::parse(model, &table, false).unwrap();
            let word = table.lookup(&spec).unwrap().effort_word(effort);
            word.map(|word| word.map(str::to_owned)).map_err(|error| error.to_string())
        };
        let is = |word: &str| Ok(Some(word.to_owned()));
        assert_eq!(word("openai/gpt-5.5", Effort::Max), is("xhigh"));
        assert_eq!(word("openai/gpt-5.1", Effort::Max), is("high"));
        assert_eq!(word("anthropic/claude-opus-5-5", Effort::Max), is("max"));
        assert_eq!(word("gemini/gemini-3.7-flash", Effort::Low), is("low"));
        assert_eq!(word("deepseek/deepseek-v4-pro", Effort::High), Ok(None));
        let missing = "the model has no effort 'none'; it has: low, medium, high, max";
        assert_eq!(word("openai/gpt-5-codex", Effort::None), Err(missing.to_owned()));
        assert!(word("openai/gpt-4o", Effort::Low).unwrap_err().contains("no setting"));
    }

    #[test]
    fn an_unknown_model_has_no_info() {
        for model in [
            "openai/gpt-5.99",
            "openai/gpt-6",
            "anthropic/gpt-4o",
            "openrouter/qwen/qwen3",
            "ollama/gpt-4o",
            "bedrock/amazon.nova-pro-v1:0",
            "scripted/gpt-4o",
        ] {
            assert_eq!(found(model), None, "{model}");
        }
    }

    #[test]
    fn a_row_of_the_user_changes_only_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        let rows = "[models.bedrock]\n\"eu.anthropic.claude-opus-5-5\" = { price = { input = 7.0, output = 9.0 } }\n\
            [models.anthropic]\n\"claude-opus-5.5\" = { window = 150_000 }\n";
        std::fs::write(&path, rows).unwrap();
        let row = |table: &ModelTable, name: &str| {
            table.lookup(&ModelSpec::parse(name, table, false).unwrap()).unwrap().clone()
        };
        let (names, built_in) = (
            ["bedrock/eu.anthropic.claude-opus-5-5-v1:0", "anthropic/claude-opus-5-5"],
            ModelTable::built_in(),
        );
        let table = built_in.clone().with_file(&path).unwrap();
        let [cloud, own] = names.map(|name| (row(&table, name), row(&built_in, name)));
        assert_eq!(cloud.0.price.unwrap().input, 7_000_000);
        assert_eq!(own.0.window, Some(Tokens(150_000)));
        assert!(own.0.price.is_some() && own.0.efforts.is_some() && own.0.max_output.is_some());
        let rest = |row: ModelInfo| (row.max_output, row.efforts, row.images);
        assert_eq!((cloud.0.window, own.0.price), (cloud.1.window, own.1.price));
        assert_eq!([cloud.0, own.0].map(rest), [cloud.1, own.1].map(rest));
    }

    #[test]
    fn a_user_file_overrides_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        let rows = "[aliases]\nmine = \"ollama/tiny\"\n[models.openai]\n\"gpt-4o\" = { price = { input = 7.0, output = 9.0 } }\n\
            [models.ollama]\n\"tiny\" = { window = 4096 }\n\
            [models.openai-chat]\n\"mine\" = { price = { input = 3.0, output = 9.0 } }\n";
        std::fs::write(&path, rows).unwrap();
        let table = ModelTable::built_in().with_file(&path).unwrap();
        assert_eq!(lookup(&table, "openai/gpt-4o"), Some(("gpt-4o".to_owned(), Some(7_000_000))));
        assert_eq!(lookup(&table, "mine"), Some(("tiny".to_owned(), None)));
        let mine = Some(("mine".to_owned(), Some(3_000_000)));
        assert_eq!(lookup(&table, "openai-chat/mine"), mine);
        for wrong in [
            "[models.unknown]\n\"a\" = {}",
            "[models.openai]\n\"a\" = { prize = 1 }",
            "[models.openai]\n\"a\" = { price = { input = -1.0, output = 1.0 } }",
        ] {
            std::fs::write(&path, wrong).unwrap();
            let refused = ModelTable::built_in().with_file(&path).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{}: ", path.display())), "{wrong}: {refused}");
        }
    }
}
