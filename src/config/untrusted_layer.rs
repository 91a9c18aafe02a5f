//! The part of a project's layer that applies while its folder is not trusted: what tightens.

use super::effective::EffectiveValue;
use super::keys::{self, KeySpec, UntrustedChange};
use super::origin::ValueOrigin;
use super::problem::{ConfigNotice, NoticeCause};
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};
use crate::types::matches_wildcard;

/// Why values of a layer are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IgnoredBecause {
    /// The project's folder is not trusted.
    UntrustedFolder,
    /// They were stored in a folder that commands may have written.
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

/// Returns the part of a layer that tightens the `current` values, and reports each key that is ignored; `path` is the key
/// of the table, followed by a dot.
pub(super) fn tighten(
    table: ConfigTable,
    path: &str,
    current: &[EffectiveValue],
    ignored: &mut impl FnMut(ValueOrigin, &str),
) -> ConfigTable {
    let mut kept = ConfigTable::new();
    for (name, node) in table {
        let path = format!("{path}{name}");
        let kept_value = match (keys::find_key(&path), node.value) {
            (Some(key), value) => {
                // Every key of a section has a value; those of an agent that only the project defines have none.
                let shown = current.iter().find(|shown| shown.key == path);
                let is_stricter =
                    shown.is_some_and(|shown| tightens(key, &value, shown.value.as_ref()));
                if !is_stricter {
                    ignored(node.key_origin.clone(), &path);
                }
                is_stricter.then_some(value)
            }
            (None, ConfigValue::Table(table)) => {
                let table = tighten(table, &format!("{path}."), current, ignored);
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

/// Returns whether a value for a key is at least as strict as the current one.
fn tightens(key: &KeySpec, value: &ConfigValue, current: Option<&ConfigValue>) -> bool {
    match key.untrusted {
        UntrustedChange::Denied => false,
        UntrustedChange::Allowed | UntrustedChange::AddItems => true,
        UntrustedChange::Lower => current.is_none_or(|current| {
            value.as_number().is_some_and(|value| Some(value) <= current.as_number())
        }),
        UntrustedChange::Only(only) => *value == ConfigValue::Bool(only),
        UntrustedChange::Stricter => {
            let words = key.words().unwrap_or_default();
            let rank =
                |value: &ConfigValue| words.iter().position(|word| value.as_text() == Some(*word));
            let bound = current.map_or(Some(words.len()), rank);
            rank(value).is_some_and(|rank| Some(rank) <= bound)
        }
        UntrustedChange::RemoveItems => {
            let is_held = |item: &ConfigNode| {
                let mut held = current.and_then(ConfigValue::as_list).into_iter().flatten();
                let Some(item) = item.value.as_text() else { return false };
                held.any(|held| {
                    held.value.as_text().is_some_and(|held| matches_wildcard(held, item))
                })
            };
            let is_list = current.is_some_and(|current| current.as_list().is_some());
            is_list && value.as_list().is_some_and(|items| items.iter().all(is_held))
        }
    }
}
