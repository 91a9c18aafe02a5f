//! Unique ids for the tool calls of a conversation.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::machine::ConversationEntry;
use crate::types::{CallId, ConversationItem};

/// The ids in a conversation, and the source of new ones.
///
/// A generated id is derived from the position of its reply in the conversation, so that a replay generates the same
/// id.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallIds {
    used: Arc<HashSet<u64>>,
    /// The number of the conversation entry with the reply.
    reply_index: u64,
}

/// Returns a hash of an id, which takes a fifth of the memory of the text. After a collision, a new id is generated for
/// the later call, which is harmless.
fn hash_of(id: &CallId) -> u64 {
    // The default hasher of maps differs between processes.
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl CallIds {
    /// Adds the ids in a conversation entry.
    pub(crate) fn add_entry(&mut self, item: &ConversationItem) {
        if let ConversationItem::Exchange(exchange) = item {
            let used = Arc::make_mut(&mut self.used);
            used.extend(exchange.reply().calls().map(|call| hash_of(&call.id)));
        }
    }

    /// Returns whether the conversation has tool calls.
    pub(crate) fn has_calls(&self) -> bool {
        !self.used.is_empty()
    }

    /// Returns the ids for the reply that follows these entries.
    pub(crate) fn for_reply(&mut self, entries: &[ConversationEntry]) -> Self {
        self.reply_index = entries.last().map_or(0, |entry| entry.id.0 + 1);
        self.clone()
    }

    /// Returns an id for each call of a reply: the provider's id, unless it is empty or in use.
    pub(crate) fn assign<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<CallId> {
        let mut assigned = HashSet::new();
        let assign_one = |(index, id): (usize, &str)| {
            let provided = Some(CallId::from(id))
                .filter(|id| !id.as_str().trim().is_empty() && id.as_str().len() <= MAX_ID_LENGTH)
                .filter(|id| self.is_free(id, &assigned));
            let id = provided.unwrap_or_else(|| self.generate(index, &assigned));
            assigned.insert(id.clone());
            id
        };
        ids.into_iter().enumerate().map(assign_one).collect()
    }

    fn is_free(&self, id: &CallId, assigned: &HashSet<CallId>) -> bool {
        !self.used.contains(&hash_of(id)) && !assigned.contains(id)
    }

    fn generate(&self, index: usize, assigned: &HashSet<CallId>) -> CallId {
        let ids = (0_u32..).map(|again| match again {
            0 => CallId::from(format!("call_{}_{index}", self.reply_index).as_str()),
            _ => CallId::from(format!("call_{}_{index}_{again}", self.reply_index).as_str()),
        });
        // There are more candidates than ids in use.
        let mut free = ids.filter(|id| self.is_free(id, assigned));
        free.next().unwrap_or_else(|| CallId::from("call"))
    }
}

/// The maximum length of an id that all providers accept.
const MAX_ID_LENGTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::EntryId;
    use crate::types::{
        Reply, ReplyFinish, ReplyPart, ToolCall, ToolExchange, ToolResult, ToolStatus, Usage,
    };

    fn exchange(number: u64, ids: &[&str]) -> ConversationEntry {
        let call = |id: &&str| ReplyPart::Call(ToolCall::new((*id).into(), "grep", "{}"));
        let parts = ids.iter().map(call).collect();
        let reply =
            Reply { parts, finish: ReplyFinish::ToolCalls, usage: Usage::default(), model: None };
        let result = |id: &&str| ToolResult::new((*id).into(), ToolStatus::Ok, "");
        let results: Vec<_> = ids.iter().map(result).collect();
        ConversationEntry {
            id: EntryId(number),
            item: ConversationItem::Exchange(ToolExchange::new(reply, results).unwrap()),
        }
    }

    fn assigned(entries: &[ConversationEntry], ids: &[&str]) -> Vec<String> {
        let mut names = CallIds::default();
        for entry in entries {
            names.add_entry(&entry.item);
        }
        let names = names.for_reply(entries);
        names.assign(ids.iter().copied()).into_iter().map(|id| id.as_str().to_owned()).collect()
    }

    /// Faults L48 and L49.
    #[test]
    fn missing_and_duplicate_ids_are_generated() {
        assert_eq!(assigned(&[], &["a", "b"]), ["a", "b"]);
        assert_eq!(assigned(&[], &["a", "a", ""]), ["a", "call_0_1", "call_0_2"]);
        assert_eq!(assigned(&[exchange(6, &["a"])], &["a", "b"]), ["call_7_0", "b"]);
        assert_eq!(assigned(&[], &["call_0_1", ""]), ["call_0_1", "call_0_1_1"]);
        assert_eq!(assigned(&[], &[&"x".repeat(65)]), ["call_0_0"]);
    }
}
