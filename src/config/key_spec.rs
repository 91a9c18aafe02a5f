//! The keys of the configuration, as `settings/` declares them.

use super::settings::description;
use super::value_tree::ConfigValue;
use crate::types::nearest;

/// The declaration of a key, known before any layer is read.
#[derive(Debug, Default)]
pub struct KeySpec {
    /// The path; `*` stands for a name that the user chooses.
    pub path: String,
    /// The description, with `{providers}` for the names of the providers.
    pub(super) doc: String,
    /// The option of the command line that sets the key.
    pub option: Option<KeyOption>,
    pub(super) value_type: ValueType,
    pub(super) default: Option<ConfigValue>,
    /// The minimum and the maximum of a number.
    pub(super) range: Option<(ConfigValue, ConfigValue)>,
    pub(super) example: Option<&'static str>,
    pub(super) is_required: bool,
    pub(super) merge: MergeStrategy,
    pub(super) untrusted: UntrustedChange,
}

/// The type of a key's values.
#[derive(Debug, Default)]
pub(super) enum ValueType {
    Bool,
    /// True, false, or this word.
    BoolOr(&'static str),
    /// A whole number, not negative.
    Integer,
    Number,
    /// A number of seconds, or a text such as "10m".
    Duration,
    #[default]
    Text,
    /// One of these words. Words that differ in strictness are sorted, the strictest first.
    Word(Vec<&'static str>),
    List(Box<Self>),
    /// Any value.
    Any,
    /// A table whose names are free.
    Map(Box<Self>),
    /// A list of tables with these keys.
    Tables(Vec<KeySpec>),
}

/// The combination of a higher layer's value with that of a lower layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MergeStrategy {
    /// The higher value replaces the lower one.
    #[default]
    Replace,
    /// The lists of all layers are concatenated.
    Append,
    /// The named tables of all layers are combined; of two with the same name, the higher replaces the lower.
    MergeByName,
}

/// The changes that an untrusted project may make to a key: only those that tighten it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UntrustedChange {
    /// Nothing: the key names a program, an address, a file or a model, or no value is stricter than another.
    #[default]
    Denied,
    /// Anything: no value is stricter or more dangerous than another.
    Allowed,
    /// Set a lower number, also if no number is set.
    Lower,
    /// Set this value.
    Only(bool),
    /// Set a word that is earlier in the list of words.
    Stricter,
    /// Add items to the list.
    AddItems,
    /// Remove items from the list.
    RemoveItems,
    /// Remove or narrow patterns of the list: each new one matches only what an old one matches.
    NarrowPatterns,
}

/// An option of the command line that sets a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyOption {
    /// The long name, without dashes.
    pub long: &'static str,
    /// The short name.
    pub short: Option<char>,
    /// The value after the option.
    pub value: OptionValue,
    /// The help, if it differs from the description of the key.
    pub help: Option<&'static str>,
    /// Whether the option is about the output of a run.
    pub is_output: bool,
}

/// The value after an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A value, with this name in the help.
    Named(&'static str),
    /// Nothing: the option sets the key to this value.
    Sets(&'static str),
}

/// Returns an option with a value, which has this name in the help.
pub(super) const fn option(long: &'static str, value: &'static str) -> KeyOption {
    KeyOption { long, short: None, value: OptionValue::Named(value), help: None, is_output: false }
}

/// Returns an option without a value that sets its key to this value.
pub(super) const fn switch(long: &'static str, sets: &'static str) -> KeyOption {
    KeyOption { long, short: None, value: OptionValue::Sets(sets), help: None, is_output: false }
}

impl KeyOption {
    pub(super) const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    pub(super) const fn help(self, help: &'static str) -> Self {
        Self { help: Some(help), ..self }
    }

    pub(super) const fn output(self) -> Self {
        Self { is_output: true, ..self }
    }
}

/// Everything that the settings declare.
#[derive(Debug, Default)]
pub(super) struct Description {
    pub(super) keys: Vec<KeySpec>,
    /// The tables that hold keys, each with its description.
    pub(super) tables: Vec<(String, String)>,
}

/// Returns every key, in the order of the sections.
pub fn keys() -> &'static [KeySpec] {
    &description().keys
}

impl KeySpec {
    /// Returns the description of the key. `providers` are the names of the providers, which the configuration does not
    /// know.
    pub fn describe(&self, providers: &str) -> String {
        self.doc.replace("{providers}", providers)
    }

    /// Returns whether a value is in the range; true if there is no range.
    pub(super) fn is_in_range(&self, value: &ConfigValue) -> bool {
        self.range.as_ref().is_none_or(|(least, most)| {
            (least.as_number()..=most.as_number()).contains(&value.as_number())
        })
    }

    /// Returns whether the values of several layers are combined, instead of the highest replacing the others.
    pub(super) fn is_cumulative(&self) -> bool {
        self.merge != MergeStrategy::Replace
    }

    /// Returns whether the value is a list of plain values.
    pub fn is_list(&self) -> bool {
        matches!(self.value_type, ValueType::List(_))
    }

    /// Returns the words that are allowed as the value; `None` if the type is not a choice of words.
    pub fn words(&self) -> Option<&[&'static str]> {
        if let ValueType::Word(words) = &self.value_type { Some(words) } else { None }
    }

    /// Returns whether the value is a whole number; `None` if it is not a number.
    pub fn whole_number(&self) -> Option<bool> {
        match self.value_type {
            ValueType::Integer => Some(true),
            ValueType::Number | ValueType::Duration => Some(false),
            _ => None,
        }
    }

    /// Returns the environment variable that sets the key: `ARCHITECT_LLM_MODEL` for `llm.model`. Keys of agents have none.
    pub(super) fn variable(&self) -> Option<String> {
        let name = self.path.replace('.', "_").to_uppercase();
        (!self.path.contains('*')).then(|| format!("{VARIABLE_PREFIX}{name}"))
    }

    /// Returns the name of the key in its table.
    pub(super) fn last_part(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// Returns the table that the key is in; empty for the whole file.
    pub(super) fn table(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(table, _)| table)
    }
}

/// Returns the changes that an untrusted project may make, each with its keys.
pub fn untrusted_changes() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut changes: Vec<(&str, Vec<&str>)> = Vec::new();
    for key in keys() {
        let change = match key.untrusted {
            UntrustedChange::Denied => continue,
            UntrustedChange::Allowed => "set any value",
            UntrustedChange::Lower => "set a lower number",
            UntrustedChange::Only(false) => "turn something off",
            UntrustedChange::Only(true) => "turn something on",
            UntrustedChange::Stricter => "choose a stricter word",
            UntrustedChange::AddItems => "add items",
            UntrustedChange::RemoveItems | UntrustedChange::NarrowPatterns => {
                "remove items, or narrow patterns"
            }
        };
        match changes.iter_mut().find(|(known, _)| *known == change) {
            Some((_, paths)) => paths.push(&key.path),
            None => changes.push((change, vec![&key.path])),
        }
    }
    changes
}

/// The prefix of all environment variables of this program.
pub const VARIABLE_PREFIX: &str = "ARCHITECT_";

/// The target of a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyMatch<'a> {
    /// A key.
    Key(&'static KeySpec),
    /// The entry of this name in a table with free names.
    Pair(&'static KeySpec, &'a str),
    /// A key of an entry of a list, below the entry's name.
    EntryKey,
}

/// Returns the target of a path; `None` if it matches nothing.
pub(super) fn find_match(path: &str) -> Option<KeyMatch<'_>> {
    if let Some(key) = find_key(path) {
        return Some(KeyMatch::Key(key));
    }
    let below = |key: &KeySpec| path.strip_prefix(key.path.as_str())?.strip_prefix('.');
    // The names of entries may contain dots.
    let mut maps = keys().iter().filter(|key| matches!(key.value_type, ValueType::Map(_)));
    if let Some((key, name)) = maps.find_map(|key| Some((key, below(key)?))) {
        return Some(KeyMatch::Pair(key, name));
    }
    let mut lists = keys().iter().filter(|key| key.merge == MergeStrategy::MergeByName);
    let is_entry = |rest: &str| rest.split('.').count() > 1 && !rest.split('.').any(str::is_empty);
    lists.any(|key| below(key).is_some_and(is_entry)).then_some(KeyMatch::EntryKey)
}

/// Returns the key that a path belongs to.
pub(super) fn find_key(path: &str) -> Option<&'static KeySpec> {
    keys().iter().find(|key| matches_pattern(&key.path, path))
}

/// Returns whether several values for a key are combined, instead of the later replacing the earlier.
pub fn is_cumulative(path: &str) -> bool {
    find_key(path).is_some_and(KeySpec::is_cumulative)
}

/// Returns whether the value of a key is a list of plain values.
pub fn is_list(path: &str) -> bool {
    find_key(path).is_some_and(KeySpec::is_list)
}

/// Returns the path of a key in another section with a similar name.
pub(super) fn suggest_from_other_sections(name: &str) -> Option<String> {
    let fixed = || keys().iter().filter(|key| !key.path.contains('*'));
    let similar = nearest(name, fixed().map(KeySpec::last_part));
    // `budget` stands for `budget_usd`.
    let longer = |part: &&str| part.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
    let found = similar.or_else(|| fixed().map(KeySpec::last_part).find(longer))?;
    fixed().find(|key| key.last_part() == found).map(|key| key.path.clone())
}

/// Returns the text of a doc comment on one line.
pub(super) fn doc_text(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn matches_pattern(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('.');
    pattern
        .split('.')
        .all(|pattern| parts.next().is_some_and(|part| pattern == "*" || pattern == part))
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_one_name() {
        assert_eq!(find_key("agents.build.max_steps").unwrap().path, "agents.*.max_steps");
        assert!(find_key("agents.max_steps").is_none());
        assert!(find_key("agents.a.b.max_steps").is_none());
    }

    #[test]
    fn each_key_is_declared_once_and_documented() {
        for (index, key) in keys().iter().enumerate() {
            assert!(keys()[..index].iter().all(|other| other.path != key.path), "{}", key.path);
            assert!(!key.doc.is_empty(), "{}", key.path);
        }
    }
}
