//! The options that set keys of the configuration, from the declarations of the keys.

use architect::config::{KeyOption, KeySpec, OptionOverride, OptionValue, is_time, keys};
use architect::llm::provider_names;
use architect::types::WordEnum;
use clap::builder::{PossibleValuesParser, StringValueParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// The options that set keys: those about output, or all others.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyOptions<const OUTPUT: bool> {
    pub(crate) overrides: Vec<OptionOverride>,
}

fn declared(is_output: bool) -> impl Iterator<Item = (&'static KeySpec, KeyOption)> {
    let with_option = |key: &'static KeySpec| Some((key, key.option?));
    keys().iter().filter_map(with_option).filter(move |(_, option)| option.is_output == is_output)
}

impl<const OUTPUT: bool> Args for KeyOptions<OUTPUT> {
    fn augment_args(command: Command) -> Command {
        declared(OUTPUT).fold(command, |command, (key, option)| command.arg(argument(key, option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const OUTPUT: bool> FromArgMatches for KeyOptions<OUTPUT> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut overrides = Vec::new();
        for (key, KeyOption { long, value, .. }) in declared(OUTPUT) {
            let values: Vec<String> = match value {
                OptionValue::Sets(value) if matches.get_flag(long) => vec![value.to_owned()],
                OptionValue::Sets(_) => Vec::new(),
                OptionValue::Named(_) => {
                    matches.get_many(long).into_iter().flatten().cloned().collect()
                }
            };
            let (key, option) = (key.path.as_str(), format!("--{long}"));
            let set = |value| OptionOverride { key, value, option: option.clone() };
            overrides.extend(values.into_iter().map(set));
        }
        Ok(Self { overrides })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(key: &'static KeySpec, option: KeyOption) -> Arg {
    let help = option.help.map_or_else(|| key.describe(&provider_names()), str::to_owned);
    let help = help.trim_end_matches('.').to_owned();
    let argument = Arg::new(option.long).long(option.long).short(option.short).help(help);
    let OptionValue::Named(name) = option.value else {
        return argument.action(ArgAction::SetTrue);
    };
    let action = if key.is_list() { ArgAction::Append } else { ArgAction::Set };
    let argument = argument
        .action(action)
        .value_parser(parser(key, name))
        .allow_negative_numbers(key.whole_number().is_some());
    if name.is_empty() { argument } else { argument.value_name(name) }
}

/// Returns a parser that finds mistakes which are visible without the configuration.
fn parser(key: &'static KeySpec, value: &str) -> ValueParser {
    if let Some(words) = key.words() {
        return PossibleValuesParser::new(words).into();
    }
    let (is_right, expected): (fn(&str) -> bool, _) = match (key.whole_number(), value) {
        (None, _) => return StringValueParser::new().into(),
        (Some(true), _) => (
            |text| text.parse::<u64>().is_ok(),
            "expected a whole number, not negative, such as 30",
        ),
        (Some(false), "USD") => (is_number, "expected a number of US dollars, such as 0.50"),
        (Some(false), _) => {
            (is_time, "expected a number of seconds such as 300, or a time such as 10m")
        }
    };
    let check = move |text: String| if is_right(&text) { Ok(text) } else { Err(expected) };
    StringValueParser::new().try_map(check).into()
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}

/// Returns a parser for the words of an enum.
pub(crate) fn words<T: WordEnum + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let words = T::WORDS.iter().map(|(word, _)| *word);
    PossibleValuesParser::new(words)
        .try_map(|word| T::from_word(&word).ok_or_else(|| format!("unknown word '{word}'")))
}
