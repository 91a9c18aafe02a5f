//! Whether every request begins like the one before it, for a provider's prompt cache remembers beginnings.

use std::sync::Arc;

use crate::machine::{Entry, EntryId};

/// How the newest request of the agent began.
#[derive(Debug, Default)]
pub(super) struct Steady(Option<Beginning>);

#[derive(Debug)]
struct Beginning {
    head: Arc<Vec<u8>>,
    /// How many entries it had, and the last of them.
    entries: usize,
    last: Option<EntryId>,
}

/// How much is shown of the place where two beginnings differ, in bytes to each side of it.
const AROUND: usize = 24;

impl Steady {
    /// Takes in how another request begins, and returns a warning when it has changed. After a compaction it may.
    pub(super) fn see(&mut self, head: &Arc<Vec<u8>>, entries: &[Entry]) -> Option<String> {
        let last = entries.last().map(|entry| entry.id);
        let new = Beginning { head: Arc::clone(head), entries: entries.len(), last };
        let old = self.0.replace(new)?;
        if Arc::ptr_eq(&old.head, head) || old.is_compacted(entries) {
            return None;
        }
        let at = old.head.iter().zip(head.iter()).position(|(a, b)| a != b);
        let at = at.unwrap_or(old.head.len().min(head.len()));
        (at < old.head.len().max(head.len())).then(|| {
            format!(
                "the beginning of the request has changed, so that the provider's prompt cache is of no use: it was \
                 `{}` and is `{}` at byte {at}",
                around(&old.head, at),
                around(head, at)
            )
        })
    }
}

impl Beginning {
    /// Returns whether these entries are no continuation of those.
    fn is_compacted(&self, entries: &[Entry]) -> bool {
        match self.entries.checked_sub(1) {
            Some(last) => entries.get(last).map(|entry| entry.id) != self.last,
            None => false,
        }
    }
}

fn around(bytes: &[u8], at: usize) -> String {
    let (from, to) = (at.saturating_sub(AROUND), (at + AROUND).min(bytes.len()));
    bytes[from.min(to)..to].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Change, Conversation, Summary};
    use crate::model::{Finish, Item, Origin, Part, Reply, Tokens, Usage};

    fn head(text: &str) -> Arc<Vec<u8>> {
        Arc::new(text.as_bytes().to_vec())
    }

    fn conversation(turns: usize) -> Conversation {
        let mut conversation = Conversation::new(0);
        let reply = Reply {
            parts: [Part::Text("so".into())].into(),
            finish: Finish::Stop,
            usage: Usage::default(),
            model: None,
        };
        for _ in 0..turns {
            for item in [Item::user(Origin::Task, "task"), Item::Assistant(reply.clone())] {
                conversation.apply(Change::Append { item });
            }
        }
        conversation
    }

    #[test]
    fn a_changed_beginning_is_told_with_the_first_place_that_differs() {
        let mut steady = Steady::default();
        let (two, three) = (conversation(2), conversation(3));
        assert_eq!(steady.see(&head("{system: one}"), two.entries()), None);
        assert_eq!(steady.see(&head("{system: one}"), three.entries()), None);
        let warning = steady.see(&head("{system: other}"), three.entries()).unwrap();
        assert!(warning.ends_with("it was `{system: one}` and is `{system: other}` at byte 10"));
        assert_eq!(steady.see(&head("{system: other}"), three.entries()), None);
        assert!(steady.see(&head("{system: other}, more"), three.entries()).is_some());
    }

    #[test]
    fn after_a_compaction_it_may_change() {
        let mut steady = Steady::default();
        let mut conversation = conversation(3);
        assert_eq!(steady.see(&head("one"), conversation.entries()), None);
        let (summary, fit) = (Summary::Mechanical, Tokens(1_000));
        conversation.apply(Change::Compact { summary, keep: 1, fit });
        assert_eq!(steady.see(&head("two"), conversation.entries()), None);
        assert!(steady.see(&head("three"), conversation.entries()).is_some());
    }
}
