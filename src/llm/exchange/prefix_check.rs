//! Checks that each request extends the previous one, since providers cache prefixes.

use std::sync::Arc;

use crate::machine::{ConversationEntry, EntryId};

/// The prefix of the agent's last request.
#[derive(Debug, Default)]
pub(super) struct PrefixCheck(Option<RequestPrefix>);

#[derive(Debug)]
struct RequestPrefix {
    head: Arc<Vec<u8>>,
    /// The number of entries, and the last one.
    entries: usize,
    last: Option<EntryId>,
}

/// The number of bytes shown on each side of a difference.
const EXCERPT_RADIUS: usize = 24;

impl PrefixCheck {
    /// Records the prefix of the next request, and returns a warning if it changed without a compaction.
    pub(super) fn check(
        &mut self,
        head: &Arc<Vec<u8>>,
        entries: &[ConversationEntry],
    ) -> Option<String> {
        let last = entries.last().map(|entry| entry.id);
        let new = RequestPrefix { head: Arc::clone(head), entries: entries.len(), last };
        let old = self.0.replace(new)?;
        // After a compaction, the entries don't continue those of the previous request.
        let is_compacted = old
            .entries
            .checked_sub(1)
            .is_some_and(|last| entries.get(last).map(|entry| entry.id) != old.last);
        if is_compacted || Arc::ptr_eq(&old.head, head) {
            return None;
        }
        let at = old.head.iter().zip(head.iter()).position(|(a, b)| a != b);
        let at = at.unwrap_or(old.head.len().min(head.len()));
        (at < old.head.len().max(head.len())).then(|| {
            format!(
                "the beginning of the request has changed, so that the provider's prompt cache is of no use: it was \
                 `{}` and is `{}` at byte {at}",
                excerpt_around(&old.head, at),
                excerpt_around(head, at)
            )
        })
    }
}

fn excerpt_around(bytes: &[u8], at: usize) -> String {
    let (from, to) = (at.saturating_sub(EXCERPT_RADIUS), (at + EXCERPT_RADIUS).min(bytes.len()));
    bytes[from.min(to)..to].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{CompactionSummary, Conversation, ConversationChange};
    use crate::types::{
        ConversationItem, MessageOrigin, Reply, ReplyFinish, ReplyPart, Tokens, Usage,
    };

    fn head(text: &str) -> Arc<Vec<u8>> {
        Arc::new(text.as_bytes().to_vec())
    }

    fn conversation(turns: usize) -> Conversation {
        let mut conversation = Conversation::new(0);
        let reply = Reply {
            parts: [ReplyPart::Text("so".into())].into(),
            finish: ReplyFinish::Stop,
            usage: Usage::default(),
            model: None,
        };
        for _ in 0..turns {
            for item in [
                ConversationItem::user(MessageOrigin::Task, "task"),
                ConversationItem::Assistant(reply.clone()),
            ] {
                conversation.apply(ConversationChange::Append { item });
            }
        }
        conversation
    }

    #[test]
    fn a_changed_prefix_is_reported_with_its_first_difference() {
        let mut steady = PrefixCheck::default();
        let (two, three) = (conversation(2), conversation(3));
        assert_eq!(steady.check(&head("{system: one}"), two.entries()), None);
        assert_eq!(steady.check(&head("{system: one}"), three.entries()), None);
        let warning = steady.check(&head("{system: other}"), three.entries()).unwrap();
        assert!(warning.ends_with("it was `{system: one}` and is `{system: other}` at byte 10"));
        assert_eq!(steady.check(&head("{system: other}"), three.entries()), None);
        assert!(steady.check(&head("{system: other}, more"), three.entries()).is_some());
    }

    #[test]
    fn a_compaction_may_change_the_prefix() {
        let mut steady = PrefixCheck::default();
        let mut conversation = conversation(3);
        assert_eq!(steady.check(&head("one"), conversation.entries()), None);
        let (summary, fit) = (CompactionSummary::Mechanical, Tokens(1_000));
        conversation.apply(ConversationChange::Compact { summary, keep: 1, target_size: fit });
        assert_eq!(steady.check(&head("two"), conversation.entries()), None);
        assert!(steady.check(&head("three"), conversation.entries()).is_some());
    }
}
