//! The encoded conversation, kept between requests.
//!
//! It only grows at its end: all requests share the bytes before, and only new entries are encoded. A compaction, which
//! changes the conversation, truncates it.

use std::sync::Arc;

use crate::machine::{ConversationEntry, EntryId};
use crate::types::ConversationItem;

/// A role in a conversation. Consecutive parts of a group share a message.
///
/// The last message is left open, so that another part or a cache mark can be added.
#[derive(Debug)]
pub(crate) struct MessageGroup {
    /// Written before the first part.
    pub(crate) open: &'static str,
    /// Written between two parts.
    pub(crate) between: &'static str,
    /// Written after the last part.
    pub(crate) close: &'static str,
    /// Written after the last part instead of `close`, to mark it for the provider's prompt cache.
    pub(crate) close_with_mark: &'static str,
}

/// The conversation encoded so far.
#[derive(Debug, Default)]
pub(crate) struct EncodedConversation {
    bytes: Arc<Vec<u8>>,
    entry_ends: Vec<EntryEnd>,
    /// The number of times that encoded entries were replaced by others.
    rewrites: u64,
    #[cfg(test)]
    encoded_bytes: u64,
}

/// The end of an entry.
#[derive(Clone, Copy, Debug)]
struct EntryEnd {
    id: EntryId,
    end: usize,
    open_group: Option<&'static MessageGroup>,
}

/// A prefix of the encoded conversation, with the group that is open at its end.
#[derive(Clone, Debug)]
pub(crate) struct EncodedPrefix {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) end: usize,
    pub(crate) open_group: Option<&'static MessageGroup>,
    /// The number of times that encoded entries were replaced by others. Of two prefixes with the same number, the
    /// longer one begins with the shorter one.
    pub(crate) rewrites: u64,
}

/// Writes parts and the text between them.
pub(crate) struct MessageWriter<'a> {
    out: &'a mut Vec<u8>,
    open_group: Option<&'static MessageGroup>,
}

impl EncodedConversation {
    /// Encodes the new entries, and returns the encoding of all given entries.
    pub(crate) fn encode(
        &mut self,
        entries: &[ConversationEntry],
        mut write: impl FnMut(&ConversationItem, &mut MessageWriter<'_>),
    ) -> EncodedPrefix {
        let same = |(entry_end, entry): &(&EntryEnd, &ConversationEntry)| entry_end.id == entry.id;
        let unchanged = self.entry_ends.iter().zip(entries).take_while(same).count();
        if unchanged < entries.len() {
            self.entry_ends.truncate(unchanged);
            let last = self.entry_ends.last();
            let (end, mut open) =
                last.map_or((0, None), |entry_end| (entry_end.end, entry_end.open_group));
            // The bytes are copied only while a cancelled call still uses them.
            let bytes = Arc::make_mut(&mut self.bytes);
            self.rewrites += u64::from(end < bytes.len());
            bytes.truncate(end);
            for entry in &entries[unchanged..] {
                let mut writer = MessageWriter::new(bytes, open);
                write(&entry.item, &mut writer);
                open = writer.open_group;
                self.entry_ends.push(EntryEnd { id: entry.id, end: bytes.len(), open_group: open });
            }
            #[cfg(test)]
            {
                self.encoded_bytes += (bytes.len() - end) as u64;
            }
        }
        let last = entries.len().checked_sub(1).and_then(|last| self.entry_ends.get(last));
        let (end, open) = last.map_or((0, None), |entry_end| (entry_end.end, entry_end.open_group));
        let (bytes, rewrites) = (Arc::clone(&self.bytes), self.rewrites);
        EncodedPrefix { bytes, end, open_group: open, rewrites }
    }

    /// Returns the number of bytes encoded so far, for tests of the cost of a step.
    #[cfg(test)]
    pub(crate) fn encoded_bytes(&self) -> u64 {
        self.encoded_bytes
    }
}

impl<'a> MessageWriter<'a> {
    /// Returns a writer that continues after an open group.
    pub(crate) fn new(out: &'a mut Vec<u8>, open: Option<&'static MessageGroup>) -> Self {
        Self { out, open_group: open }
    }

    /// Writes a part of a group.
    pub(crate) fn add(&mut self, group: &'static MessageGroup, write: impl FnOnce(&mut Vec<u8>)) {
        let before: &[&str] = match self.open_group {
            Some(open) if std::ptr::eq(open, group) => &[group.between],
            Some(open) => &[open.close, ",", group.open],
            None => &[group.open],
        };
        for text in before {
            self.out.extend_from_slice(text.as_bytes());
        }
        self.open_group = Some(group);
        write(self.out);
    }

    /// Returns whether the last part belongs to this group.
    pub(crate) fn is_in(&self, group: &'static MessageGroup) -> bool {
        self.open_group.is_some_and(|open| std::ptr::eq(open, group))
    }

    /// Closes the last group, with or without a cache mark.
    pub(crate) fn close(self, is_marked: bool) {
        if let Some(open) = self.open_group {
            let text = if is_marked { open.close_with_mark } else { open.close };
            self.out.extend_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MessageOrigin;

    static USER: MessageGroup =
        MessageGroup { open: "[", between: "|", close: "]", close_with_mark: "*]" };
    static OTHER: MessageGroup =
        MessageGroup { open: "(", between: ",", close: ")", close_with_mark: ")" };

    fn entry(id: u64, text: &str) -> ConversationEntry {
        ConversationEntry {
            id: EntryId(id),
            item: ConversationItem::user(MessageOrigin::Task, text),
        }
    }

    fn write(item: &ConversationItem, writer: &mut MessageWriter<'_>) {
        let ConversationItem::User(message) = item else { panic!() };
        let group = if message.text.starts_with('!') { &OTHER } else { &USER };
        writer.add(group, |out| out.extend_from_slice(message.text.as_bytes()));
    }

    fn encoded_text(script: &mut EncodedConversation, entries: &[ConversationEntry]) -> String {
        let part = script.encode(entries, write);
        let mut bytes = part.bytes[..part.end].to_vec();
        MessageWriter::new(&mut bytes, part.open_group).close(false);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn parts_of_one_role_share_a_message() {
        let entries = [entry(0, "a"), entry(1, "b"), entry(2, "!c"), entry(3, "d")];
        let mut script = EncodedConversation::default();
        assert_eq!(encoded_text(&mut script, &entries), "[a|b],(!c),[d]");
        assert_eq!(encoded_text(&mut script, &entries[..2]), "[a|b]");
        assert_eq!(encoded_text(&mut script, &entries), "[a|b],(!c),[d]");
        assert_eq!(encoded_text(&mut script, &[]), "");
    }

    #[test]
    fn an_entry_is_encoded_once() {
        let mut script = EncodedConversation::default();
        let entries: Vec<_> = (0..10).map(|id| entry(id, "12345678")).collect();
        let mut before = Vec::new();
        for count in 1..=10 {
            let part = script.encode(&entries[..count], write);
            assert!(part.bytes.starts_with(&before));
            assert_eq!(script.encoded_bytes(), 9 * count as u64);
            before = part.bytes[..part.end].to_vec();
        }
    }

    #[test]
    fn a_compaction_encodes_only_the_changed_entries() {
        let mut script = EncodedConversation::default();
        let all = [entry(0, "task"), entry(1, "old"), entry(2, "new")];
        assert_eq!(encoded_text(&mut script, &all), "[task|old|new]");
        let encoded = script.encoded_bytes();
        let compacted = [entry(0, "task"), entry(3, "sum"), entry(2, "new")];
        assert_eq!(encoded_text(&mut script, &compacted), "[task|sum|new]");
        assert_eq!(script.encoded_bytes() - encoded, 8);
    }

    #[test]
    fn a_pending_request_keeps_its_bytes() {
        let mut script = EncodedConversation::default();
        let first = script.encode(&[entry(0, "a")], write);
        let second = script.encode(&[entry(1, "b")], write);
        assert_eq!(
            (&first.bytes[..first.end], &second.bytes[..second.end]),
            (&b"[a"[..], &b"[b"[..])
        );
    }

    #[test]
    fn the_cache_mark_is_set_after_the_last_part() {
        let mut out = Vec::new();
        let mut writer = MessageWriter::new(&mut out, Some(&USER));
        writer.add(&USER, |out| out.push(b'x'));
        assert!(writer.is_in(&USER) && !writer.is_in(&OTHER));
        writer.close(true);
        assert_eq!(out, b"|x*]");
    }
}
