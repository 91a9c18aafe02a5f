//! The part of a project's layer that applies while its folder is not trusted: values that tighten.

use super::agents;
use super::effective::EffectiveValue;
use super::key_spec::{self, KeySpec, UntrustedChange};
use super::origin::{LayerRank, ValueOrigin};
use super::problem::{ConfigNotice, NoticeCause};
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};
use crate::types::matches_wildcard;

/// The reason why values of a layer are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IgnoredBecause {
    /// The project's folder is not trusted.
    UntrustedFolder,
    /// The values were stored in a folder that commands may have written.
    StoredInWorkspace,
}

impl IgnoredBecause {
    /// Returns the notice about an ignored key.
    pub(super) fn notice(self, origin: ValueOrigin, key: &str) -> ConfigNotice {
        let (why, cause) = match self {
            Self::UntrustedFolder => ("this folder is not trusted", NoticeCause::Untrusted),
            Self::StoredInWorkspace => (
                "commands may have written the folder of this session; give the option again if you want it",
                NoticeCause::Other,
            ),
        };
        ConfigNotice { origin, message: format!("`{key}` is ignored, because {why}"), cause }
    }
}

/// The values that a restricted layer may only tighten.
pub(super) struct TightenedValues<'a> {
    /// The values of the layers below.
    pub(super) below: &'a [EffectiveValue],
    /// The values of all unrestricted layers, including those above.
    pub(super) trusted: &'a [EffectiveValue],
}

impl<'a> TightenedValues<'a> {
    /// Returns the values that a new value of this key has to tighten; if empty, the new value is ignored. For an
    /// agent's key that is not set, these are the values that it inherits, also from a layer above.
    fn bounds(&self, path: &str) -> Vec<&'a EffectiveValue> {
        let find = |values: &'a [EffectiveValue], path: &str| {
            values.iter().find(|shown| shown.key == path)
        };
        // Every key of a section has a value. Only keys of agents that the project alone defines have none.
        let Some(own) = find(self.below, path) else { return Vec::new() };
        match agents::inherited_key(path).filter(|_| own.value.is_none()) {
            Some(key) => {
                [self.below, self.trusted].iter().filter_map(|of| find(of, &key)).collect()
            }
            None => vec![own],
        }
    }
}

/// Returns the part of a layer that tightens other values, and reports each ignored key; `path` is the key of the
/// table, followed by a dot.
pub(super) fn tighten(
    table: ConfigTable,
    path: &str,
    others: &TightenedValues<'_>,
    ignored: &mut impl FnMut(ValueOrigin, &str),
) -> ConfigTable {
    let mut kept = ConfigTable::new();
    for (name, mut node) in table {
        let path = format!("{path}{name}");
        let kept_value = match (key_spec::find_key(&path), node.value) {
            (Some(key), value) => {
                let bounds = others.bounds(&path);
                let is_stricter = !bounds.is_empty()
                    && bounds.iter().all(|shown| tightens(key, &value, shown.value.as_ref()));
                match bounds.iter().map(|shown| shown.origin.rank).max().filter(|_| is_stricter) {
                    // The value takes precedence over a value of another key only if the tightened value does.
                    Some(rank) => node.origin.rank = rank,
                    None => ignored(node.key_origin.clone(), &path),
                }
                is_stricter.then_some(value)
            }
            (None, ConfigValue::Table(table)) => {
                let table = tighten(table, &format!("{path}."), others, ignored);
                (!table.is_empty()).then_some(ConfigValue::Table(table))
            }
            (None, _) => None,
        };
        if let Some(value) = kept_value {
            kept.insert(name, ConfigNode { value, ..node });
        }
    }
    kept
}

/// Finds the keys that the layer of a manifest sets although only the user may: all that are not in `KEYS_OF_MANIFESTS`,
/// and those whose value is less strict than the one that the user has set.
pub(super) fn find_loosened(
    table: &ConfigTable,
    path: &str,
    own: &[EffectiveValue],
    found: &mut impl FnMut(&ValueOrigin, &str),
) {
    for (name, node) in table {
        let path = format!("{path}{name}");
        match (key_spec::find_key(&path), &node.value) {
            (Some(key), value) if loosens(key, value, &path, own) => {
                found(&node.key_origin, &path);
            }
            (None, ConfigValue::Table(table)) => {
                find_loosened(table, &format!("{path}."), own, found);
            }
            (Some(_) | None, _) => {}
        }
    }
}

/// Keys and sections without a stricter value that a manifest can set: the model, the context, and agents.
const KEYS_OF_MANIFESTS: [&str; 9] = [
    "agents",
    "context",
    "evaluation.confidence_threshold",
    "evaluation.model",
    "llm.effort",
    "llm.fallback",
    "llm.model",
    "llm.options",
    "llm.summary_model",
];

/// Keys that a manifest can't make less strict than the defaults either.
const KEPT_DEFAULTS: [&str; 2] = ["allowed_tools", "unknown_price"];

/// Returns whether a manifest's value is the user's to set, or less strict than the one that the user has set.
fn loosens(key: &KeySpec, value: &ConfigValue, path: &str, own: &[EffectiveValue]) -> bool {
    match key.untrusted {
        UntrustedChange::Denied => {
            let is_in = |section: &&str| {
                path.strip_prefix(*section)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            return !KEYS_OF_MANIFESTS.iter().any(is_in);
        }
        UntrustedChange::Allowed => return false,
        UntrustedChange::AddItems => return !tightens(key, value, None),
        _ => {}
    }
    let find = |path: &str| own.iter().find(|value| value.key == path);
    let is_set = |value: &EffectiveValue| value.origin.rank > LayerRank::Default;
    // The list of hosts matters if the network is limited to it.
    let network = find("sandbox.network").filter(|_| path == "sandbox.allowed_hosts");
    let is_kept = KEPT_DEFAULTS.contains(&key.last_part()) || network.is_some_and(is_set);
    // An agent's key that is not set is inherited, also by an agent that only the manifest defines.
    let bounds = [Some(path.to_owned()), agents::inherited_key(path)].into_iter().flatten();
    let bounds = bounds.filter_map(|key| find(&key)).filter(|bound| is_kept || is_set(bound));
    let mut values = bounds.filter_map(|bound| bound.value.as_ref());
    values.any(|bound| !tightens(key, value, Some(bound)))
}

/// Returns whether a value for a key is at least as strict as another one.
fn tightens(key: &KeySpec, value: &ConfigValue, current: Option<&ConfigValue>) -> bool {
    match key.untrusted {
        UntrustedChange::Denied => false,
        UntrustedChange::Allowed => true,
        // In an option, an empty list would remove the items of the files.
        UntrustedChange::AddItems => value.as_list().is_some_and(|items| !items.is_empty()),
        UntrustedChange::Lower => current.is_none_or(|current| {
            value.as_number().is_some_and(|value| Some(value) <= current.as_number())
        }),
        UntrustedChange::Only(only) => *value == ConfigValue::Bool(only),
        UntrustedChange::Stricter => {
            let words = key.words().unwrap_or_default();
            let rank =
                |value: &ConfigValue| words.iter().position(|word| value.as_text() == Some(*word));
            rank(value).is_some_and(|value| Some(value) <= current.and_then(rank))
        }
        UntrustedChange::RemoveItems => holds_all(current, value, |held, item| held == item),
        UntrustedChange::NarrowPatterns => holds_all(current, value, includes_pattern),
    }
}

/// Returns whether each item of a list is covered by an item of the current list.
fn holds_all(
    current: Option<&ConfigValue>,
    value: &ConfigValue,
    holds: impl Fn(&str, &str) -> bool,
) -> bool {
    let is_held = |current: &[ConfigNode], item: &ConfigNode| {
        let texts = current.iter().filter_map(|held| held.value.as_text());
        item.value.as_text().is_some_and(|item| texts.into_iter().any(|held| holds(held, item)))
    };
    let lists = current.and_then(ConfigValue::as_list).zip(value.as_list());
    lists.is_some_and(|(current, items)| items.iter().all(|item| is_held(current, item)))
}

/// Returns whether a pattern matches everything that another pattern matches. Each alternative of the other pattern is
/// compared as a text: only a `*` matches the other's `*`, and then also any text in that place.
fn includes_pattern(pattern: &str, other: &str) -> bool {
    other.split('|').all(|other| matches_wildcard(pattern, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_includes_another_one_only_with_all_its_alternatives() {
        for (pattern, other) in [
            ("read_*", "read_file"),
            ("read_*", "read_f*|read_image"),
            ("a*c|b", "b|a*b*c"),
            ("*", "a|*"),
        ] {
            assert!(includes_pattern(pattern, other), "{pattern} {other}");
        }
        for (pattern, other) in [
            ("read_*", "read_file|run_command"),
            ("read_*", "*"),
            ("a*c", "a*"),
            ("a*b*c", "a*c"),
            ("ab", "a*"),
        ] {
            assert!(!includes_pattern(pattern, other), "{pattern} {other}");
        }
    }
}
