//! Answers that the model has already: the same call, with the same answer, a few turns ago.

use super::conversation::Entry;
use super::instructions;
use crate::model::{Exchange, Item, ToolCall, ToolResult};

/// How many of the newest turns are looked at.
const BACK: usize = 16;

/// Returns an exchange in which each answer that the model has already says so first.
///
/// The whole of the answer stays: what the model has already may be far above. Answers that changed something are left
/// as they are, and so are failures, about which the loop detection has its own word.
pub(super) fn noted(entries: &[Entry], exchange: Exchange) -> Exchange {
    let ago: Vec<Option<usize>> = exchange
        .reply()
        .calls()
        .zip(exchange.results())
        .map(|(call, result)| turns_ago(entries, call, result))
        .collect();
    if ago.iter().all(Option::is_none) {
        return exchange;
    }
    let noted = exchange.results().iter().zip(ago).map(|(result, ago)| match ago {
        // The digest stays that of the answer itself.
        Some(ago) => ToolResult {
            text: format!("{}\n{}", instructions::known(ago), result.text).into(),
            ..result.clone()
        },
        None => result.clone(),
    });
    let noted: Vec<ToolResult> = noted.collect();
    Exchange::new(exchange.reply().clone(), noted).unwrap_or(exchange)
}

fn turns_ago(entries: &[Entry], call: &ToolCall, result: &ToolResult) -> Option<usize> {
    if !result.is_ok() || !result.changes.is_empty() {
        return None;
    }
    let turns = entries.iter().rev().filter(|entry| !matches!(entry.item, Item::User(_)));
    turns.take(BACK).position(|entry| match &entry.item {
        Item::Exchange(exchange) => {
            let mut pairs = exchange.reply().calls().zip(exchange.results());
            pairs.any(|(c, r)| c.digest == call.digest && r.digest == result.digest)
        }
        Item::Assistant(_) | Item::User(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Change, Conversation};
    use crate::model::{FileAction, FileChange, Finish, Origin, Part, Reply, ToolStatus, Usage};

    fn exchange(arguments: &str, status: ToolStatus, text: &str) -> Item {
        let call = ToolCall::new("1".into(), "read_file", arguments);
        let result = ToolResult::new("1".into(), status, text);
        let (usage, model) = (Usage::default(), None);
        let reply =
            Reply { parts: [Part::Call(call)].into(), finish: Finish::ToolCalls, usage, model };
        Item::Exchange(Exchange::new(reply, [result]).unwrap())
    }

    /// Returns the last answer of a conversation with these exchanges.
    fn last(items: Vec<Item>) -> String {
        let mut conversation = Conversation::new(0);
        for item in items {
            conversation.apply(Change::Append { item });
            let item = Item::user(Origin::Steering, "go on");
            conversation.apply(Change::Append { item });
        }
        let exchange = conversation.entries().iter().rev().find_map(|entry| match &entry.item {
            Item::Exchange(exchange) => Some(exchange.results()[0].text.to_string()),
            _ => None,
        });
        exchange.unwrap()
    }

    #[test]
    fn what_was_just_read_is_told_to_be_known() {
        let read = |text| exchange(r#"{"path":"a"}"#, ToolStatus::Ok, text);
        let other = || exchange(r#"{"path":"b"}"#, ToolStatus::Ok, "two");
        let known =
            "[The same call had the same answer 2 turns ago; nothing has changed since.]\none";
        assert_eq!(last(vec![read("one"), other(), read("one")]), known);
        assert_eq!(last(vec![read("one"), other(), read("new")]), "new");
        // Once more: the answer itself is what is compared, not its note.
        let known =
            "[The same call had the same answer 1 turn ago; nothing has changed since.]\none";
        assert_eq!(last(vec![read("one"), read("one"), read("one")]), known);
    }

    #[test]
    fn failures_and_what_is_far_above_are_no_news() {
        let failed = || exchange("{}", ToolStatus::Failed, "no");
        assert_eq!(last(vec![failed(), failed()]), "no");
        let read = || exchange("{}", ToolStatus::Ok, "one");
        let mut items = vec![read()];
        items.extend((0..BACK).map(|turn| exchange(&format!("[{turn}]"), ToolStatus::Ok, "x")));
        items.push(read());
        assert_eq!(last(items), "one");
    }

    /// That it changed something again is news.
    #[test]
    fn what_changed_something_is_no_reread() {
        let write = || {
            let Item::Exchange(exchange) = exchange("{}", ToolStatus::Ok, "written") else {
                unreachable!()
            };
            let mut result = exchange.results()[0].clone();
            let (path, action) = ("a".into(), FileAction::Modified);
            result.changes.push(FileChange { path, action, added: 1, removed: 1 });
            Item::Exchange(Exchange::new(exchange.reply().clone(), [result]).unwrap())
        };
        assert_eq!(last(vec![write(), write()]), "written");
    }
}
