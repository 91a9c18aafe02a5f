//! Notes on repeated results: the same call with the same result, a few turns ago.

use crate::machine::context::conversation::ConversationEntry;
use crate::machine::context::instructions;
use crate::types::{ConversationItem, ToolCall, ToolExchange, ToolResult};

/// The number of newest turns that are compared.
const LOOKBACK_TURNS: usize = 16;

/// Returns an exchange in which each repeated result begins with a note.
///
/// The result itself is kept, because the earlier one may be far above. Results of changes stay unchanged, and so do
/// failures, which the loop detection covers.
pub(crate) fn annotate_repeated_results(
    entries: &[ConversationEntry],
    exchange: ToolExchange,
) -> ToolExchange {
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
        // The digest stays that of the result itself.
        Some(ago) => ToolResult {
            text: format!("{}\n{}", instructions::already_answered(ago), result.text).into(),
            ..result.clone()
        },
        None => result.clone(),
    });
    let noted: Vec<ToolResult> = noted.collect();
    ToolExchange::new(exchange.reply().clone(), noted).unwrap_or(exchange)
}

fn turns_ago(entries: &[ConversationEntry], call: &ToolCall, result: &ToolResult) -> Option<usize> {
    if !result.is_ok() || !result.changes.is_empty() {
        return None;
    }
    let turns =
        entries.iter().rev().filter(|entry| !matches!(entry.item, ConversationItem::User(_)));
    turns.take(LOOKBACK_TURNS).position(|entry| match &entry.item {
        ConversationItem::Exchange(exchange) => {
            let mut pairs = exchange.reply().calls().zip(exchange.results());
            pairs.any(|(c, r)| c.digest == call.digest && r.digest == result.digest)
        }
        ConversationItem::Assistant(_) | ConversationItem::User(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Conversation, ConversationChange};
    use crate::types::{
        FileAction, FileChange, MessageOrigin, Reply, ReplyFinish, ReplyPart, ToolStatus, Usage,
    };

    fn exchange(arguments: &str, status: ToolStatus, text: &str) -> ConversationItem {
        let call = ToolCall::new("1".into(), "read_file", arguments);
        let result = ToolResult::new("1".into(), status, text);
        let (usage, model) = (Usage::default(), None);
        let reply = Reply {
            parts: [ReplyPart::Call(call)].into(),
            finish: ReplyFinish::ToolCalls,
            usage,
            model,
        };
        ConversationItem::Exchange(ToolExchange::new(reply, [result]).unwrap())
    }

    /// Returns the last result of a conversation with these exchanges.
    fn last(items: Vec<ConversationItem>) -> String {
        let mut conversation = Conversation::new(0);
        for item in items {
            conversation.apply(ConversationChange::Append { item });
            let item = ConversationItem::user(MessageOrigin::Steering, "go on");
            conversation.apply(ConversationChange::Append { item });
        }
        let exchange = conversation.entries().iter().rev().find_map(|entry| match &entry.item {
            ConversationItem::Exchange(exchange) => Some(exchange.results()[0].text.to_string()),
            _ => None,
        });
        exchange.unwrap()
    }

    #[test]
    fn a_repeated_result_is_noted() {
        let read = |text| exchange(r#"{"path":"a"}"#, ToolStatus::Ok, text);
        let other = || exchange(r#"{"path":"b"}"#, ToolStatus::Ok, "two");
        let known =
            "[The same call had the same answer 2 turns ago; nothing has changed since.]\none";
        assert_eq!(last(vec![read("one"), other(), read("one")]), known);
        assert_eq!(last(vec![read("one"), other(), read("new")]), "new");
        // Again: the result itself is compared, without its note.
        let known =
            "[The same call had the same answer 1 turn ago; nothing has changed since.]\none";
        assert_eq!(last(vec![read("one"), read("one"), read("one")]), known);
    }

    #[test]
    fn failures_and_distant_results_are_not_noted() {
        let failed = || exchange("{}", ToolStatus::Failed, "no");
        assert_eq!(last(vec![failed(), failed()]), "no");
        let read = || exchange("{}", ToolStatus::Ok, "one");
        let mut items = vec![read()];
        items.extend(
            (0..LOOKBACK_TURNS).map(|turn| exchange(&format!("[{turn}]"), ToolStatus::Ok, "x")),
        );
        items.push(read());
        assert_eq!(last(items), "one");
    }

    /// A second change is new information.
    #[test]
    fn results_of_changes_are_not_noted() {
        let write = || {
            let ConversationItem::Exchange(exchange) = exchange("{}", ToolStatus::Ok, "written")
            else {
                unreachable!()
            };
            let mut result = exchange.results()[0].clone();
            let (path, action) = ("a".into(), FileAction::Modified);
            result.changes.push(FileChange { path, action, added: 1, removed: 1 });
            ConversationItem::Exchange(
                ToolExchange::new(exchange.reply().clone(), [result]).unwrap(),
            )
        };
        assert_eq!(last(vec![write(), write()]), "written");
    }
}
