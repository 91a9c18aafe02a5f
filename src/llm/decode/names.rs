//! Ids of tool calls: each is there, and none stands twice in a conversation.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::machine::Entry;
use crate::model::{CallId, Item};

/// The ids that a conversation uses, and what new ones are made of.
///
/// A made-up id is derived from the place of its reply in the conversation, so that a replay makes up the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    used: Arc<HashSet<Mark>>,
    /// The number of the entry that the reply will become.
    reply: u64,
}

/// What is kept of an id, whose text would take five times the room: a session keeps those of all its steps. Where two ids
/// had the same mark, the later one would be made up, which does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Mark(u64);

impl Mark {
    fn of(id: &CallId) -> Self {
        // Not the hasher of a map, which is another one in each process.
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl Names {
    /// Takes note of the ids in these entries; those that were there before are passed over.
    pub(crate) fn note(&mut self, item: &Item) {
        if let Item::Exchange(exchange) = item {
            let used = Arc::make_mut(&mut self.used);
            used.extend(exchange.reply().calls().map(|call| Mark::of(&call.id)));
        }
    }

    /// Returns whether a tool was ever called.
    pub(crate) fn any(&self) -> bool {
        !self.used.is_empty()
    }

    /// Returns the names for the reply to these entries.
    pub(crate) fn after(&mut self, entries: &[Entry]) -> Self {
        self.reply = entries.last().map_or(0, |entry| entry.id.0 + 1);
        self.clone()
    }

    /// Returns an id for each call of a reply: the provider's own, unless it is empty or taken.
    pub(crate) fn settle<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<CallId> {
        let mut taken = HashSet::new();
        let settle = |(index, id): (usize, &str)| {
            let own = Some(CallId::from(id))
                .filter(|id| !id.as_str().trim().is_empty() && id.as_str().len() <= LONGEST)
                .filter(|id| self.is_free(id, &taken));
            let id = own.unwrap_or_else(|| self.make_up(index, &taken));
            taken.insert(id.clone());
            id
        };
        ids.into_iter().enumerate().map(settle).collect()
    }

    fn is_free(&self, id: &CallId, taken: &HashSet<CallId>) -> bool {
        !self.used.contains(&Mark::of(id)) && !taken.contains(id)
    }

    fn make_up(&self, index: usize, taken: &HashSet<CallId>) -> CallId {
        let ids = (0_u32..).map(|again| match again {
            0 => CallId::from(format!("call_{}_{index}", self.reply).as_str()),
            _ => CallId::from(format!("call_{}_{index}_{again}", self.reply).as_str()),
        });
        // There are more names than taken ones.
        let mut free = ids.filter(|id| self.is_free(id, taken));
        free.next().unwrap_or_else(|| CallId::from("call"))
    }
}

/// The longest id that every provider takes back.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::EntryId;
    use crate::model::{Exchange, Finish, Part, Reply, ToolCall, ToolResult, ToolStatus, Usage};

    fn exchange(number: u64, ids: &[&str]) -> Entry {
        let call = |id: &&str| Part::Call(ToolCall::new((*id).into(), "grep", "{}"));
        let parts = ids.iter().map(call).collect();
        let reply =
            Reply { parts, finish: Finish::ToolCalls, usage: Usage::default(), model: None };
        let result = |id: &&str| ToolResult::new((*id).into(), ToolStatus::Ok, "");
        let results: Vec<_> = ids.iter().map(result).collect();
        Entry { id: EntryId(number), item: Item::Exchange(Exchange::new(reply, results).unwrap()) }
    }

    fn settled(entries: &[Entry], ids: &[&str]) -> Vec<String> {
        let mut names = Names::default();
        for entry in entries {
            names.note(&entry.item);
        }
        let names = names.after(entries);
        names.settle(ids.iter().copied()).into_iter().map(|id| id.as_str().to_owned()).collect()
    }

    /// Faults L48 and L49.
    #[test]
    fn ids_that_are_missing_or_stand_twice_are_made_up() {
        assert_eq!(settled(&[], &["a", "b"]), ["a", "b"]);
        assert_eq!(settled(&[], &["a", "a", ""]), ["a", "call_0_1", "call_0_2"]);
        assert_eq!(settled(&[exchange(6, &["a"])], &["a", "b"]), ["call_7_0", "b"]);
        assert_eq!(settled(&[], &["call_0_1", ""]), ["call_0_1", "call_0_1_1"]);
        assert_eq!(settled(&[], &[&"x".repeat(65)]), ["call_0_0"]);
    }
}
