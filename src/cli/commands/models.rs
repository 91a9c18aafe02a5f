//! `architect models`: lists the models that the user can choose by name.

use architect::app::{KnownModel, KnownModels, ProcessEnv, available_models, known_models};
use architect::llm::model_table::{self, ModelTable};
use architect::llm::{Provider, provider_names};
use architect::types::{Effort, Price, Tokens};
use architect::view::{TERMINAL_WIDTH, in_columns_within};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::args::ModelsArgs;
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

pub(crate) fn run(args: &ModelsArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_settings(&args.settings, world)?;
    let KnownModels { models, table: known, problems } = known_models(&config)?;
    for problem in problems {
        log::warn!("{problem}");
    }
    let provider = args.provider.as_deref().and_then(Provider::from_name);
    if let (Some(name), None) = (args.provider.as_deref(), provider) {
        let known = provider_names();
        return Err(CliError::usage(format!(
            "unknown provider '{name}'\n  known providers: {known}"
        )));
    }
    if args.online {
        let available = available_models(&config, world, provider)?;
        let models = available.map_err(|fault| CliError::failed(&fault.message))?;
        return print(&models.iter().collect::<Vec<_>>(), &known, args.json);
    }
    let is_asked = |model: &&KnownModel| {
        args.provider.as_ref().is_none_or(|name| model.info.provider.name() == name)
    };
    let models: Vec<&KnownModel> = models.iter().filter(is_asked).collect();
    let code = print(&models, &known, args.json)?;
    match provider.filter(|provider| !args.json && !known.has_provider(provider)) {
        Some(provider) => output::print(&format!("\n{}", missing_models_note(provider))),
        None => Ok(code),
    }
}

fn print(models: &[&KnownModel], known: &ModelTable, is_json: bool) -> Result<u8, CliError> {
    if is_json {
        let document = |model: &&KnownModel| ModelDocument::new(model, known);
        let documents: Vec<ModelDocument> = models.iter().map(document).collect();
        return output::print(&output::to_json(&documents));
    }
    output::print(&table(models, known))
}

/// Returns a note about the models of a provider that are missing in the table.
fn missing_models_note(provider: &Provider) -> String {
    let (name, example) = (provider.name(), model_table::example(provider));
    let makers = model_table::makers(provider);
    let more = match makers {
        [] => format!(
            "Their windows and prices are unknown: [models.NAME] in your configuration or `costs.prices_file` sets them.\n\
             `architect models --online --provider {name}` asks the server for its models."
        ),
        _ => format!(
            "Windows, output limits and prices are those of the models of {} with the same names, unless\n\
             `costs.prices_file` sets others; `architect models --provider {}` lists them.",
            makers.join(", "),
            makers.join("|")
        ),
    };
    format!(
        "The table has no models of {name} itself. Name one as in --model {name}/{example}.\n{more}\n"
    )
}

fn table(models: &[&KnownModel], known: &ModelTable) -> String {
    let header = ["model", "window", "reply", "in", "cached", "out", "efforts"];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(models.iter().map(|model| {
        let info = &model.info;
        let tokens = |tokens: Option<Tokens>| tokens.map_or("?".to_owned(), |it| it.0.to_string());
        let dollars =
            |micros: Option<u64>| micros.map_or("?".to_owned(), |it| dollars(it).to_string());
        let efforts = match info.efforts() {
            None => "?".to_owned(),
            Some(none) if none.is_empty() => "-".to_owned(),
            Some(efforts) => short_efforts(&efforts),
        };
        [
            label(model),
            tokens(info.window),
            tokens(info.max_output),
            dollars(info.price.map(|price| price.input)),
            dollars(info.price.map(|price| price.cached_input)),
            dollars(info.price.map(|price| price.output)),
            efforts,
        ]
    }));
    let table = in_columns_within(TERMINAL_WIDTH, &rows, |column| (1..=5).contains(&column));
    let date = known.date();
    let mut text = format!(
        "Window and longest reply in tokens; prices in US dollars for a million tokens\n\
         (input, cached input, output), as of {date}.\n\n{table}"
    );
    for model in models {
        for alias in aliases(model, known) {
            text += &format!("\n{alias} stands for {}", model.name);
        }
    }
    text
}

/// Returns the aliases of a model.
fn aliases<'t>(model: &KnownModel, known: &'t ModelTable) -> impl Iterator<Item = &'t str> {
    let all = known.aliases().iter().filter(|_| model.defined_as.is_none());
    all.filter(|(_, name)| **name == model.name).map(|(alias, _)| alias.as_str())
}

/// Returns the efforts, with successive ones as a range.
fn short_efforts(efforts: &[&str]) -> String {
    let all: Vec<&str> = Effort::ALL.iter().map(|effort| effort.as_str()).collect();
    let is_range = efforts.len() > 2 && all.windows(efforts.len()).any(|part| part == efforts);
    match efforts {
        [first, .., last] if is_range => format!("{first}–{last}"),
        _ => efforts.join(" "),
    }
}

fn label(model: &KnownModel) -> String {
    match &model.defined_as {
        Some(name) => format!("{name} ({})", model.name),
        None => model.name.clone(),
    }
}

/// A model, as `architect models --json` lists it. Prices are in dollars for a million tokens.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelDocument {
    /// The name under which the configuration defines the model; null for other models.
    name: Option<String>,
    /// The model, as `provider/name`.
    model: String,
    /// The other names of the model in the table.
    aliases: Vec<String>,
    /// The provider.
    provider: &'static str,
    /// The context window in tokens; null if it is unknown.
    window: Option<u64>,
    /// The maximum number of tokens in a reply; null if it is unknown.
    max_output: Option<u64>,
    /// The price; null if it is unknown.
    price: Option<PriceDocument>,
    /// The date of the table of models.
    table_date: String,
    /// The words that `--effort` accepts; null if they are unknown.
    efforts: Option<Vec<&'static str>>,
}

/// A price in dollars for a million tokens.
#[derive(Serialize, JsonSchema)]
struct PriceDocument {
    /// The price of requests.
    input: f64,
    /// The price of replies.
    output: f64,
    /// The price of the part of a request that is read from the cache.
    cached_input: f64,
    /// The price of the part of a request that is written to the cache.
    cache_write: f64,
}

impl ModelDocument {
    fn new(model: &KnownModel, known: &ModelTable) -> Self {
        let info = &model.info;
        let price = |price: Price| PriceDocument {
            input: dollars(price.input),
            output: dollars(price.output),
            cached_input: dollars(price.cached_input),
            cache_write: dollars(price.cache_write),
        };
        Self {
            name: model.defined_as.clone(),
            model: model.name.clone(),
            aliases: aliases(model, known).map(str::to_owned).collect(),
            provider: info.provider.name(),
            window: info.window.map(|tokens| tokens.0),
            max_output: info.max_output.map(|tokens| tokens.0),
            price: info.price.map(price),
            table_date: known.date().to_owned(),
            efforts: info.efforts(),
        }
    }
}

/// Returns a price in dollars.
#[allow(clippy::cast_precision_loss)] // far below 2^53
fn dollars(micros: u64) -> f64 {
    micros as f64 / 1e6
}
