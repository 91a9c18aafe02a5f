//! `architect models`: lists the models that can be named.

use std::fmt::Write as _;

use architect::app::{KnownModel, ProcessEnv, available_models, known_models};
use architect::llm::{Provider, provider_names};
use architect::model::Tokens;
use serde_json::{Value, json};

use crate::cli::args::ModelsArgs;
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

pub(crate) fn run(args: &ModelsArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_settings(&args.settings, world)?;
    let (models, date) = known_models(&config)?;
    let provider = args.provider.as_deref().and_then(Provider::from_name);
    if let (Some(name), None) = (args.provider.as_deref(), provider) {
        let known = provider_names();
        let text = format!("unknown provider '{name}'; known providers: {known}");
        return Err(CliError::failed(text));
    }
    if args.online {
        let available = available_models(&config, world, provider)?;
        let models = available.map_err(|fault| CliError::failed(&fault.message))?;
        return print(&models.iter().collect::<Vec<_>>(), &date, args.json);
    }
    let is_asked = |model: &&KnownModel| {
        args.provider.as_ref().is_none_or(|name| model.info.provider.name() == name)
    };
    let models: Vec<&KnownModel> = models.iter().filter(is_asked).collect();
    print(&models, &date, args.json)
}

fn print(models: &[&KnownModel], date: &str, is_json: bool) -> Result<u8, CliError> {
    if is_json {
        let documents: Value = models.iter().map(|model| document(model, date)).collect();
        return output::print(&documents.to_string());
    }
    output::print(&table(models, date))
}

fn table(models: &[&KnownModel], date: &str) -> String {
    let mut text = format!("Prices in US dollars for a million tokens, as of {date}.\n\n");
    let width = models.iter().map(|model| label(model).len()).max().unwrap_or_default().max(5);
    let _ = writeln!(
        text,
        "{:width$}  {:>9}  {:>8}  {:>7}  {:>7}  {:>7}  efforts",
        "model", "window", "output", "input", "cached", "output"
    );
    for model in models {
        let info = &model.info;
        let tokens = |tokens: Option<Tokens>| tokens.map_or("?".to_owned(), |it| it.0.to_string());
        let dollars =
            |micros: Option<u64>| micros.map_or("?".to_owned(), |it| dollars(it).to_string());
        let efforts = match info.efforts() {
            None => "?".to_owned(),
            Some(none) if none.is_empty() => "-".to_owned(),
            Some(efforts) => efforts.join(" "),
        };
        let _ = writeln!(
            text,
            "{:width$}  {:>9}  {:>8}  {:>7}  {:>7}  {:>7}  {efforts}",
            label(model),
            tokens(info.window),
            tokens(info.max_output),
            dollars(info.price.map(|price| price.input)),
            dollars(info.price.map(|price| price.cached_input)),
            dollars(info.price.map(|price| price.output)),
        );
    }
    text
}

fn label(model: &KnownModel) -> String {
    match &model.defined_as {
        Some(name) => format!("{name} ({})", model.name),
        None => model.name.clone(),
    }
}

fn document(model: &KnownModel, date: &str) -> Value {
    let info = &model.info;
    let price = info.price.map(|price| {
        json!({
            "input": dollars(price.input),
            "output": dollars(price.output),
            "cached_input": dollars(price.cached_input),
            "cache_write": dollars(price.cache_write),
        })
    });
    json!({
        "name": model.defined_as,
        "model": model.name,
        "provider": info.provider.name(),
        "window": info.window.map(|tokens| tokens.0),
        "max_output": info.max_output.map(|tokens| tokens.0),
        "price": price,
        "table_date": date,
        "efforts": info.efforts(),
    })
}

/// Returns a price in dollars.
#[allow(clippy::cast_precision_loss)] // far below 2^53
fn dollars(micros: u64) -> f64 {
    micros as f64 / 1e6
}
