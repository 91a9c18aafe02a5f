//! The files that a call has read, for results from before [`ToolResult::reads`] existed.
//!
//! A compaction lists the files that were read. A replay must produce the same list, so the reads of an old result are
//! taken from the arguments of its call, as the release that wrote it did.

use crate::machine::{Event, State};
use crate::tools::implied_read;
use crate::types::{ConversationItem, ToolCall, ToolExchange, ToolResult};

/// Returns an event of a run in this state. If the reads of a tool's result are missing, they are added.
pub(super) fn complete_event(event: Event, state: &State) -> Event {
    match (event, state) {
        (Event::ToolCompleted { id, result }, State::Executing(executing)) => {
            let call = executing.calls.iter().find(|call| call.state.pending_effect() == Some(id));
            let result = match call {
                Some(call) => complete(&call.call, result),
                None => result,
            };
            Event::ToolCompleted { id, result }
        }
        (event, _) => event,
    }
}

/// Returns an item of a stored conversation. Missing reads of its results are added.
pub(super) fn complete_item(item: &ConversationItem) -> ConversationItem {
    let ConversationItem::Exchange(exchange) = item else { return item.clone() };
    let pairs = exchange.reply().calls().zip(exchange.results());
    let results: Vec<ToolResult> =
        pairs.map(|(call, result)| complete(call, result.clone())).collect();
    let completed = ToolExchange::new(exchange.reply().clone(), results);
    completed.map_or_else(|_| item.clone(), ConversationItem::Exchange)
}

fn complete(call: &ToolCall, mut result: ToolResult) -> ToolResult {
    if result.is_ok() && result.reads.is_empty() {
        result.reads = implied_read(call).into_iter().collect();
    }
    result
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::{Reply, ReplyFinish, ReplyPart, ToolStatus, Usage};

    fn reads(name: &str, status: ToolStatus, reads: &[&str]) -> Vec<Arc<str>> {
        let call = ToolCall::new("1".into(), name, r#"{"path":"./a"}"#);
        let mut result = ToolResult::new("1".into(), status, "");
        result.reads = reads.iter().map(|path| Arc::from(*path)).collect();
        let reply = Reply {
            parts: [ReplyPart::Call(call)].into(),
            ..Reply::text_only("", ReplyFinish::ToolCalls, Usage::default())
        };
        let exchange = ToolExchange::new(reply, [result]).unwrap();
        match complete_item(&ConversationItem::Exchange(exchange)) {
            ConversationItem::Exchange(exchange) => exchange.results()[0].reads.to_vec(),
            item => panic!("{item:?}"),
        }
    }

    #[test]
    fn only_a_successful_read_without_stored_reads_is_completed() {
        assert_eq!(reads("read_file", ToolStatus::Ok, &[]), ["a".into()]);
        assert_eq!(reads("read_file", ToolStatus::Ok, &["b"]), ["b".into()]);
        assert!(reads("read_file", ToolStatus::Failed, &[]).is_empty());
        assert!(reads("edit_file", ToolStatus::Ok, &[]).is_empty());
    }
}
