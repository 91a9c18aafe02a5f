//! Merging two layers.

use super::keys::{self, MergeStrategy};
use super::origin::LayerRank;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};

/// Merges two layers; `path` is the key of the tables, followed by a dot.
pub(super) fn merge(mut lower: ConfigTable, higher: ConfigTable, path: &str) -> ConfigTable {
    for (name, above) in higher {
        let key = format!("{path}{name}");
        let node = match lower.remove(&name) {
            Some(below) => merge_nodes(below, above, &key),
            None => expand_entries(above, &key),
        };
        lower.insert(name, node);
    }
    lower
}

fn merge_nodes(below: ConfigNode, above: ConfigNode, key: &str) -> ConfigNode {
    let shape = keys::find_key(key).map_or(MergeStrategy::Replace, |key| key.merge);
    let value = match (below.value, above.value, shape) {
        (ConfigValue::Table(below), ConfigValue::Table(above), _) => {
            ConfigValue::Table(merge(below, above, &format!("{key}.")))
        }
        // An option with `[]` clears the lists of files; a file can only add to them.
        (
            ConfigValue::List(_),
            ConfigValue::List(items),
            MergeStrategy::Append | MergeStrategy::MergeByName,
        ) if items.is_empty() && above.origin.rank == LayerRank::Argument => {
            ConfigValue::List(items)
        }
        (ConfigValue::List(below), ConfigValue::Table(above), MergeStrategy::MergeByName) => {
            ConfigValue::List(merge_entry_keys(below, above))
        }
        (ConfigValue::List(below), ConfigValue::List(above), MergeStrategy::Append) => {
            ConfigValue::List(append_new_items(below, above))
        }
        (ConfigValue::List(below), ConfigValue::List(above), MergeStrategy::MergeByName) => {
            ConfigValue::List(merge_by_name(below, above))
        }
        (_, above, _) => above,
    };
    ConfigNode { value, ..above }
}

/// Turns keys of entries that no lower layer has into entries.
fn expand_entries(node: ConfigNode, key: &str) -> ConfigNode {
    let is_named = keys::find_key(key).is_some_and(|key| key.merge == MergeStrategy::MergeByName);
    match node.value {
        ConfigValue::Table(table) if is_named => {
            ConfigNode { value: ConfigValue::List(merge_entry_keys(Vec::new(), table)), ..node }
        }
        ConfigValue::Table(table) => {
            let table = merge(ConfigTable::new(), table, &format!("{key}."));
            ConfigNode { value: ConfigValue::Table(table), ..node }
        }
        value => ConfigNode { value, ..node },
    }
}

/// Sets keys of entries; `above` has them by the name of the entry.
fn merge_entry_keys(mut below: Vec<ConfigNode>, above: ConfigTable) -> Vec<ConfigNode> {
    for (name, keys) in above {
        let ConfigValue::Table(fields) = keys.value else { continue };
        let entry = below.iter_mut().find(|entry| entry_name(entry) == Some(&name));
        if let Some(ConfigValue::Table(entry)) = entry.map(|entry| &mut entry.value) {
            *entry = merge(std::mem::take(entry), fields, "");
            continue;
        }
        let own = ConfigNode::new(ConfigValue::Text(name), keys.origin.clone());
        let mut entry = fields;
        entry.entry("name".to_owned()).or_insert(own);
        below.push(ConfigNode {
            value: ConfigValue::Table(entry),
            key_origin: keys.key_origin,
            origin: keys.origin,
        });
    }
    below
}

fn append_new_items(mut below: Vec<ConfigNode>, above: Vec<ConfigNode>) -> Vec<ConfigNode> {
    for item in above {
        if below.iter().all(|known| known.value.as_text() != item.value.as_text()) {
            below.push(item);
        }
    }
    below
}

/// Merges lists of named entries; a replaced entry keeps its position.
fn merge_by_name(mut below: Vec<ConfigNode>, above: Vec<ConfigNode>) -> Vec<ConfigNode> {
    for item in above {
        let name = entry_name(&item);
        match below.iter_mut().find(|known| name.is_some() && entry_name(known) == name) {
            Some(known) => *known = item,
            None => below.push(item),
        }
    }
    below
}

fn entry_name(node: &ConfigNode) -> Option<&str> {
    let ConfigValue::Table(table) = &node.value else { return None };
    table.get("name")?.value.as_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::origin::{ConfigDocument, LayerRank};
    use crate::config::value_tree::parse_document;

    fn merged(lower: &str, higher: &str) -> String {
        let read =
            |text| parse_document(LayerRank::User, &ConfigDocument::new("a".into(), text)).unwrap();
        ConfigValue::Table(merge(read(lower), read(higher), "")).to_string()
    }

    #[test]
    fn tables_are_merged_and_the_higher_value_wins() {
        let merged = merged("llm = { retries = 1, stream = true }", "llm.retries = 2");
        assert_eq!(merged, "{ llm = { retries = 2, stream = true } }");
    }

    #[test]
    fn keys_of_an_entry_are_set_in_it_or_create_it() {
        let layer = "guardrails.quality_gates.a.timeout = 5";
        let below = "guardrails.quality_gates = [{ name = 'a', command = 'x' }]";
        let list = |entry: &str| format!("{{ guardrails = {{ quality_gates = [{entry}] }} }}");
        let set = list("{ command = \"x\", name = \"a\", timeout = 5 }");
        assert_eq!(merged(below, layer), set);
        assert_eq!(merged("", layer), list("{ name = \"a\", timeout = 5 }"));
    }

    #[test]
    fn only_an_option_clears_a_cumulative_list() {
        let emptied = |rank| {
            let read =
                |rank, text| parse_document(rank, &ConfigDocument::new("a".into(), text)).unwrap();
            let below = read(LayerRank::User, "permissions.deny = ['a']");
            let merged = merge(below, read(rank, "permissions.deny = []"), "");
            ConfigValue::Table(merged).to_string() == "{ permissions = { deny = [] } }"
        };
        assert!(emptied(LayerRank::Argument));
        assert!(
            ![LayerRank::User, LayerRank::Project, LayerRank::Variable, LayerRank::File]
                .into_iter()
                .any(emptied)
        );
    }

    #[test]
    fn rules_and_guarded_files_add_up_and_other_lists_are_replaced() {
        let merged = merged(
            "permissions.deny = ['a', 'b']\nsandbox.writable = ['/a']",
            "permissions.deny = ['b', 'c']\nsandbox.writable = []",
        );
        let expected =
            r#"{ permissions = { deny = ["a", "b", "c"] }, sandbox = { writable = [] } }"#;
        assert_eq!(merged, expected);
    }

    #[test]
    fn named_entries_add_up_and_the_higher_of_two_with_one_name_wins() {
        let merged = merged(
            "hooks.stop = [{ name = 'a', command = '1' }, { name = 'b', command = '2' }]",
            "hooks.stop = [{ name = 'c', command = '3' }, { name = 'a', command = '4' }]",
        );
        let expected = "{ hooks = { stop = [{ command = \"4\", name = \"a\" }, \
                        { command = \"2\", name = \"b\" }, { command = \"3\", name = \"c\" }] } }";
        assert_eq!(merged, expected);
    }
}
