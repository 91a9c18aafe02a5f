//! One layer above another.

use super::keys::{self, Shape};
use super::tree::{Node, Table, Value};

/// Returns what two layers say together; `path` is the key of the tables, with a dot behind it.
pub(super) fn merge(mut lower: Table, higher: Table, path: &str) -> Table {
    for (name, above) in higher {
        let key = format!("{path}{name}");
        let node = match lower.remove(&name) {
            Some(below) => join(below, above, &key),
            None => above,
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
        (Value::List(below), Value::List(above), Shape::Sum) => Value::List(sum(below, above)),
        (Value::List(below), Value::List(above), Shape::Named) => {
            Value::List(by_name(below, above))
        }
        (_, above, _) => above,
    };
    Node { value, ..above }
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
