//! What is left of a project's layer while its folder is not trusted: what tightens.

use super::keys::{self, Untrusted};
use super::origin::Origin;
use super::problem::{Notice, NoticeCause};
use super::report::Shown;
use super::tree::{Node, Table, Value};
use crate::model::wildcard;

/// Returns the part of a layer that tightens what holds without it, and a notice for each key that was left out.
pub(super) fn tighten(layer: Table, holds: &[Shown]) -> (Table, Vec<Notice>) {
    let mut notices = Vec::new();
    let table = Filter { holds, notices: &mut notices }.table(layer, "");
    (table, notices)
}

struct Filter<'a> {
    /// The value of every key below this layer.
    holds: &'a [Shown],
    notices: &'a mut Vec<Notice>,
}

impl Filter<'_> {
    fn table(&mut self, table: Table, path: &str) -> Table {
        let mut kept = Table::new();
        for (name, node) in table {
            if let Some(node) = self.node(node, &format!("{path}{name}")) {
                kept.insert(name, node);
            }
        }
        kept
    }

    fn node(&mut self, node: Node, path: &str) -> Option<Node> {
        let Node { value, origin, key } = node;
        match (keys::find(path), value) {
            (Some(known), value) => {
                let tightened = self.tightened(known.untrusted, value, path);
                if tightened.is_none() {
                    self.notice(key.clone(), path);
                }
                tightened.map(|value| Node { value, origin, key })
            }
            (None, Value::Table(table)) => {
                let table = self.table(table, &format!("{path}."));
                let value = Value::Table(table);
                (!matches!(&value, Value::Table(table) if table.is_empty())).then_some(Node {
                    value,
                    origin,
                    key,
                })
            }
            (None, _) => None,
        }
    }

    fn notice(&mut self, origin: Origin, path: &str) {
        let message = format!("`{path}` is left out, because this folder is not trusted");
        self.notices.push(Notice { origin, message, cause: NoticeCause::Untrusted });
    }

    /// Returns the value, or the part of it that tightens.
    fn tightened(&self, how: Untrusted, value: Value, path: &str) -> Option<Value> {
        // What holds is known for every key of a section; an agent that only the project knows has none.
        let shown = self.holds.iter().find(|shown| shown.key == path && !shown.is_item)?;
        let holds = shown.value.as_ref();
        match how {
            Untrusted::Nothing => None,
            Untrusted::Anything => Some(value),
            Untrusted::Lower => {
                let is_lower = match holds {
                    None => true,
                    Some(holds) => number(&value)? <= number(holds)?,
                };
                is_lower.then_some(value)
            }
            Untrusted::Only(only) => (value == Value::Bool(only)).then_some(value),
            Untrusted::Ahead(words) => {
                let rank = |value: &Value| words.iter().position(|word| value.text() == Some(word));
                let bound = holds.map_or(Some(words.len()), rank)?;
                rank(&value).is_some_and(|rank| rank <= bound).then_some(value)
            }
            Untrusted::Add => Some(value),
            Untrusted::LeaveOut => left_out(value, holds),
        }
    }
}

/// Returns the items of a list that the list that holds has too, be it by a pattern.
fn left_out(value: Value, holds: Option<&Value>) -> Option<Value> {
    let (Value::List(items), Some(Value::List(holds))) = (value, holds) else { return None };
    let is_held = |item: &Node| {
        holds.iter().any(|held| match (held.value.text(), item.value.text()) {
            (Some(held), Some(item)) => wildcard(held, item),
            _ => false,
        })
    };
    let (kept, rest): (Vec<Node>, Vec<Node>) = items.into_iter().partition(is_held);
    rest.is_empty().then_some(Value::List(kept))
}

fn number(value: &Value) -> Option<f64> {
    match value {
        #[allow(clippy::cast_precision_loss)] // exact up to 2^53, and every range ends before
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}
