//! One layer above another.

use super::keys::{self, Shape};
use super::origin::Rank;
use super::tree::{Node, Table, Value};

/// Returns what two layers say together; `path` is the key of the tables, with a dot behind it.
pub(super) fn merge(mut lower: Table, higher: Table, path: &str) -> Table {
    for (name, above) in higher {
        let key = format!("{path}{name}");
        let node = match lower.remove(&name) {
            Some(below) => join(below, above, &key),
            None => alone(above, &key),
        };
        lower.insert(name, node);
    }
    lower
}

fn join(below: Node, above: Node, key: &str) -> Node {
    let shape = keys::find(key).map_or(Shape::One, |key| key.shape);
    let value = match (below.value, above.value, shape) {
        (Value::Table(below), Value::Table(above), _) => {
            Value::Table(merge(below, above, &format!("{key}.")))
        }
        // An option that says `[]` takes back what files say; what a file says adds up with the other layers in any case.
        (Value::List(_), Value::List(items), Shape::Sum | Shape::Named)
            if items.is_empty() && above.origin.rank == Rank::Argument =>
        {
            Value::List(items)
        }
        (Value::List(below), Value::Table(above), Shape::Named) => {
            Value::List(by_key(below, above))
        }
        (Value::List(below), Value::List(above), Shape::Sum) => Value::List(sum(below, above)),
        (Value::List(below), Value::List(above), Shape::Named) => {
            Value::List(by_name(below, above))
        }
        (_, above, _) => above,
    };
    Node { value, ..above }
}

/// Keys of entries that no lower layer has are entries of their own.
fn alone(node: Node, key: &str) -> Node {
    let is_named = keys::find(key).is_some_and(|key| key.shape == Shape::Named);
    match node.value {
        Value::Table(table) if is_named => {
            Node { value: Value::List(by_key(Vec::new(), table)), ..node }
        }
        Value::Table(table) => {
            let table = merge(Table::new(), table, &format!("{key}."));
            Node { value: Value::Table(table), ..node }
        }
        value => Node { value, ..node },
    }
}

/// Sets keys of entries, each below the name of its entry.
fn by_key(mut below: Vec<Node>, above: Table) -> Vec<Node> {
    for (name, keys) in above {
        let Value::Table(fields) = keys.value else { continue };
        let entry = below.iter_mut().find(|entry| name_of(entry) == Some(&name));
        if let Some(Value::Table(entry)) = entry.map(|entry| &mut entry.value) {
            *entry = merge(std::mem::take(entry), fields, "");
            continue;
        }
        let own = Node::new(Value::Text(name), keys.origin.clone());
        let mut entry = fields;
        entry.entry("name".to_owned()).or_insert(own);
        below.push(Node { value: Value::Table(entry), key: keys.key, origin: keys.origin });
    }
    below
}

fn sum(mut below: Vec<Node>, above: Vec<Node>) -> Vec<Node> {
    for item in above {
        if below.iter().all(|known| known.value.text() != item.value.text()) {
            below.push(item);
        }
    }
    below
}

/// An entry keeps its place in the order when a higher layer says something else about it.
fn by_name(mut below: Vec<Node>, above: Vec<Node>) -> Vec<Node> {
    for item in above {
        let name = name_of(&item);
        match below.iter_mut().find(|known| name.is_some() && name_of(known) == name) {
            Some(known) => *known = item,
            None => below.push(item),
        }
    }
    below
}

fn name_of(node: &Node) -> Option<&str> {
    let Value::Table(table) = &node.value else { return None };
    table.get("name")?.value.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::origin::{Document, Rank};
    use crate::config::tree::parse;

    fn merged(lower: &str, higher: &str) -> String {
        let read = |text| parse(Rank::User, &Document::new("a".into(), text)).unwrap();
        Value::Table(merge(read(lower), read(higher), "")).to_string()
    }

    #[test]
    fn tables_go_together_and_the_higher_value_holds() {
        let merged = merged("llm = { retries = 1, stream = true }", "llm.retries = 2");
        assert_eq!(merged, "{ llm = { retries = 2, stream = true } }");
    }

    #[test]
    fn keys_of_an_entry_are_set_in_it_or_make_one() {
        let layer = "guardrails.quality_gates.a.timeout = 5";
        let below = "guardrails.quality_gates = [{ name = 'a', command = 'x' }]";
        let list = |entry: &str| format!("{{ guardrails = {{ quality_gates = [{entry}] }} }}");
        let set = list("{ command = \"x\", name = \"a\", timeout = 5 }");
        assert_eq!(merged(below, layer), set);
        assert_eq!(merged("", layer), list("{ name = \"a\", timeout = 5 }"));
    }

    #[test]
    fn only_an_option_empties_a_list_that_adds_up() {
        let emptied = |rank| {
            let read = |rank, text| parse(rank, &Document::new("a".into(), text)).unwrap();
            let below = read(Rank::User, "permissions.deny = ['a']");
            let merged = merge(below, read(rank, "permissions.deny = []"), "");
            Value::Table(merged).to_string() == "{ permissions = { deny = [] } }"
        };
        assert!(emptied(Rank::Argument));
        assert!(![Rank::User, Rank::Project, Rank::Variable, Rank::File].into_iter().any(emptied));
    }

    #[test]
    fn rules_and_guarded_files_add_up_and_other_lists_do_not() {
        let merged = merged(
            "permissions.deny = ['a', 'b']\nsandbox.writable = ['/a']",
            "permissions.deny = ['b', 'c']\nsandbox.writable = []",
        );
        let expected =
            r#"{ permissions = { deny = ["a", "b", "c"] }, sandbox = { writable = [] } }"#;
        assert_eq!(merged, expected);
    }

    #[test]
    fn entries_with_names_add_up_and_the_higher_of_two_with_one_name_holds() {
        let merged = merged(
            "hooks.stop = [{ name = 'a', command = '1' }, { name = 'b', command = '2' }]",
            "hooks.stop = [{ name = 'c', command = '3' }, { name = 'a', command = '4' }]",
        );
        let expected = "{ hooks = { stop = [{ command = \"4\", name = \"a\" }, \
                        { command = \"2\", name = \"b\" }, { command = \"3\", name = \"c\" }] } }";
        assert_eq!(merged, expected);
    }
}
