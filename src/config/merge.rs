//! Merging two layers.

use super::key_spec::{self, MergeStrategy};
use super::origin::LayerRank;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};

/// Merges two layers; `path` is the key of the tables, followed by a dot.
pub(super) fn merge(mut lower: ConfigTable, higher: ConfigTable, path: &str) -> ConfigTable {
    for (name, above) in higher {
        let key = format!("{path}{name}");
        let strategy = key_spec::find_key(&key).map_or(MergeStrategy::Replace, |key| key.merge);
        let below = lower.remove(&name).map(|below| below.value);
        let below = below.unwrap_or_else(|| match strategy {
            MergeStrategy::Replace => ConfigValue::Table(ConfigTable::new()),
            MergeStrategy::Append | MergeStrategy::MergeByName => ConfigValue::List(Vec::new()),
        });
        let value = match (below, above.value, strategy) {
            (ConfigValue::Table(below), ConfigValue::Table(above), _) => {
                ConfigValue::Table(merge(below, above, &format!("{key}.")))
            }
            (ConfigValue::List(below), ConfigValue::Table(above), MergeStrategy::MergeByName) => {
                ConfigValue::List(merge_entry_keys(below, above))
            }
            // An option with `[]` clears the lists of files, while a file can only add to them.
            (ConfigValue::List(below), ConfigValue::List(above_items), strategy)
                if strategy != MergeStrategy::Replace
                    && !(above_items.is_empty() && above.origin.rank == LayerRank::Argument) =>
            {
                ConfigValue::List(merge_items(below, above_items))
            }
            (_, above, _) => above,
        };
        lower.insert(name, ConfigNode { value, ..above });
    }
    lower
}

/// Sets keys of entries. `above` maps the names of entries to their keys; missing entries are added.
fn merge_entry_keys(mut below: Vec<ConfigNode>, above: ConfigTable) -> Vec<ConfigNode> {
    for (name, node) in above {
        let ConfigValue::Table(mut keys) = node.value else { continue };
        let entry = below.iter_mut().find(|entry| entry.text_at("name") == Some(&name));
        if let Some(ConfigValue::Table(entry)) = entry.map(|entry| &mut entry.value) {
            *entry = merge(std::mem::take(entry), keys, "");
            continue;
        }
        let own = ConfigNode::new(ConfigValue::Text(name), node.origin.clone());
        keys.entry("name".to_owned()).or_insert(own);
        below.push(ConfigNode { value: ConfigValue::Table(keys), ..node });
    }
    below
}

/// Adds items to a list. An item with the same text or the same name replaces the old one at its position.
fn merge_items(mut below: Vec<ConfigNode>, above: Vec<ConfigNode>) -> Vec<ConfigNode> {
    for item in above {
        let id = item_id(&item);
        match below.iter_mut().find(|known| id.is_some() && item_id(known) == id) {
            Some(known) => *known = item,
            None => below.push(item),
        }
    }
    below
}

fn item_id(node: &ConfigNode) -> Option<&str> {
    node.value.as_text().or_else(|| node.text_at("name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::effective::ReadReport;
    use crate::config::origin::ConfigDocument;
    use crate::config::toml_document::parse_document;

    fn read(rank: LayerRank, text: &str) -> ConfigTable {
        let document = ConfigDocument::new("a".into(), text);
        parse_document(rank, &document, &mut ReadReport::default()).unwrap()
    }

    fn merged(lower: &str, higher: &str) -> String {
        let read = |text| read(LayerRank::User, text);
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
