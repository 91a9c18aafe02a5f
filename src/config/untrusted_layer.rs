//! The part of a project's layer that applies while its folder is not trusted: what tightens.

use super::effective::EffectiveValue;
use super::keys::{self, KeySpec, UntrustedChange};
use super::origin::ValueOrigin;
use super::problem::{ConfigNotice, NoticeCause};
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};
use crate::model::matches_wildcard;

/// Returns the part of a layer that tightens the `current` values, and a notice for each key that is ignored.
pub(super) fn tighten(
    layer: ConfigTable,
    holds: &[EffectiveValue],
) -> (ConfigTable, Vec<ConfigNotice>) {
    let mut notices = Vec::new();
    let table = TightenFilter { current: holds, notices: &mut notices }.filter_table(layer, "");
    (table, notices)
}

struct TightenFilter<'a> {
    /// The value of every key in the layers below.
    current: &'a [EffectiveValue],
    notices: &'a mut Vec<ConfigNotice>,
}

impl TightenFilter<'_> {
    fn filter_table(&mut self, table: ConfigTable, path: &str) -> ConfigTable {
        let mut kept = ConfigTable::new();
        for (name, node) in table {
            if let Some(node) = self.filter_node(node, &format!("{path}{name}")) {
                kept.insert(name, node);
            }
        }
        kept
    }

    fn filter_node(&mut self, node: ConfigNode, path: &str) -> Option<ConfigNode> {
        let ConfigNode { value, origin, key_origin: key } = node;
        match (keys::find_key(path), value) {
            (Some(known), value) => {
                let tightened = self.stricter_part(known, value, path);
                if tightened.is_none() {
                    self.report_skipped(key.clone(), path);
                }
                tightened.map(|value| ConfigNode { value, origin, key_origin: key })
            }
            (None, ConfigValue::Table(table)) => {
                let table = self.filter_table(table, &format!("{path}."));
                let value = ConfigValue::Table(table);
                (!matches!(&value, ConfigValue::Table(table) if table.is_empty()))
                    .then_some(ConfigNode { value, origin, key_origin: key })
            }
            (None, _) => None,
        }
    }

    fn report_skipped(&mut self, origin: ValueOrigin, path: &str) {
        let message = format!("`{path}` is ignored, because this folder is not trusted");
        self.notices.push(ConfigNotice { origin, message, cause: NoticeCause::Untrusted });
    }

    /// Returns the value, or the part of it that tightens; `None` if it loosens.
    fn stricter_part(&self, key: &KeySpec, value: ConfigValue, path: &str) -> Option<ConfigValue> {
        // Every key of a section has a value; those of an agent that only the project defines have none.
        let shown = self.current.iter().find(|shown| shown.key == path && !shown.is_list_item)?;
        let holds = shown.value.as_ref();
        match key.untrusted {
            UntrustedChange::Denied => None,
            UntrustedChange::Allowed => Some(value),
            UntrustedChange::Lower => {
                let is_lower = match holds {
                    None => true,
                    Some(holds) => as_number(&value)? <= as_number(holds)?,
                };
                is_lower.then_some(value)
            }
            UntrustedChange::Only(only) => (value == ConfigValue::Bool(only)).then_some(value),
            UntrustedChange::Stricter => {
                let words = key.words()?;
                let rank = |value: &ConfigValue| {
                    words.iter().position(|word| value.as_text() == Some(*word))
                };
                let bound = holds.map_or(Some(words.len()), rank)?;
                rank(&value).is_some_and(|rank| rank <= bound).then_some(value)
            }
            UntrustedChange::AddItems => Some(value),
            UntrustedChange::RemoveItems => subset_of(value, holds),
        }
    }
}

/// Returns a list if each of its items matches one of the current list.
fn subset_of(value: ConfigValue, holds: Option<&ConfigValue>) -> Option<ConfigValue> {
    let (ConfigValue::List(items), Some(ConfigValue::List(holds))) = (value, holds) else {
        return None;
    };
    let is_held = |item: &ConfigNode| {
        holds.iter().any(|held| match (held.value.as_text(), item.value.as_text()) {
            (Some(held), Some(item)) => matches_wildcard(held, item),
            _ => false,
        })
    };
    let (kept, rest): (Vec<ConfigNode>, Vec<ConfigNode>) = items.into_iter().partition(is_held);
    rest.is_empty().then_some(ConfigValue::List(kept))
}

fn as_number(value: &ConfigValue) -> Option<f64> {
    match value {
        #[allow(clippy::cast_precision_loss)] // exact up to 2^53, and every range ends before
        ConfigValue::Integer(number) => Some(*number as f64),
        ConfigValue::Float(number) => Some(*number),
        _ => None,
    }
}
