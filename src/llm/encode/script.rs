//! The conversation as a wire writes it, kept from request to request.
//!
//! The script grows at its end only: an entry that was written stays as it is, so that the bytes before it are the same
//! in every request, and only what is new has to be encoded. It is cut back only where the conversation itself changed,
//! by a compaction.

use std::sync::Arc;

use crate::machine::{Entry, EntryId};
use crate::model::Item;

/// How pieces of one role stand together: consecutive pieces of a group share one message.
///
/// The last piece is left open, so that the next one can join it, and so that a mark can be set on it.
#[derive(Debug)]
pub(crate) struct Group {
    /// Written before the first piece.
    pub(crate) open: &'static str,
    /// Written between two pieces.
    pub(crate) between: &'static str,
    /// Written after the last piece.
    pub(crate) close: &'static str,
    /// Written after the last piece instead, where the provider's cache shall remember everything up to it.
    pub(crate) marked: &'static str,
}

/// The conversation as it was written so far.
#[derive(Debug, Default)]
pub(crate) struct Script {
    bytes: Arc<Vec<u8>>,
    marks: Vec<Mark>,
    #[cfg(test)]
    encoded: u64,
}

/// Where an entry ends.
#[derive(Clone, Copy, Debug)]
struct Mark {
    id: EntryId,
    end: usize,
    open: Option<&'static Group>,
}

/// A beginning of a script, with the group that is open at its end.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) end: usize,
    pub(crate) open: Option<&'static Group>,
}

/// Writes pieces, and what has to stand between them.
pub(crate) struct Pen<'a> {
    out: &'a mut Vec<u8>,
    open: Option<&'static Group>,
}

impl Script {
    /// Returns what these entries amount to, after writing those that are new.
    pub(crate) fn of(
        &mut self,
        entries: &[Entry],
        mut write: impl FnMut(&Item, &mut Pen<'_>),
    ) -> Part {
        let same = |(mark, entry): &(&Mark, &Entry)| mark.id == entry.id;
        let known = self.marks.iter().zip(entries).take_while(same).count();
        if known < entries.len() {
            self.marks.truncate(known);
            let last = self.marks.last();
            let (end, mut open) = last.map_or((0, None), |mark| (mark.end, mark.open));
            // Unique again, unless a call that was cancelled has not let go of it yet; then it is copied.
            let bytes = Arc::make_mut(&mut self.bytes);
            bytes.truncate(end);
            for entry in &entries[known..] {
                let mut pen = Pen::new(bytes, open);
                write(&entry.item, &mut pen);
                open = pen.open;
                self.marks.push(Mark { id: entry.id, end: bytes.len(), open });
            }
            #[cfg(test)]
            {
                self.encoded += (bytes.len() - end) as u64;
            }
        }
        let last = entries.len().checked_sub(1).and_then(|last| self.marks.get(last));
        let (end, open) = last.map_or((0, None), |mark| (mark.end, mark.open));
        Part { bytes: Arc::clone(&self.bytes), end, open }
    }

    /// Returns how many bytes were ever encoded, for tests that hold the cost of a step flat.
    #[cfg(test)]
    pub(crate) fn encoded(&self) -> u64 {
        self.encoded
    }
}

impl<'a> Pen<'a> {
    /// Returns a pen that goes on where this group is open.
    pub(crate) fn new(out: &'a mut Vec<u8>, open: Option<&'static Group>) -> Self {
        Self { out, open }
    }

    /// Writes a piece of this group.
    pub(crate) fn add(&mut self, group: &'static Group, write: impl FnOnce(&mut Vec<u8>)) {
        let before: &[&str] = match self.open {
            Some(open) if std::ptr::eq(open, group) => &[group.between],
            Some(open) => &[open.close, ",", group.open],
            None => &[group.open],
        };
        for text in before {
            self.out.extend_from_slice(text.as_bytes());
        }
        self.open = Some(group);
        write(self.out);
    }

    /// Returns whether the last piece belongs to this group.
    pub(crate) fn is_in(&self, group: &'static Group) -> bool {
        self.open.is_some_and(|open| std::ptr::eq(open, group))
    }

    /// Closes the last group, with or without a mark.
    pub(crate) fn close(self, is_marked: bool) {
        if let Some(open) = self.open {
            let text = if is_marked { open.marked } else { open.close };
            self.out.extend_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Origin;

    static USER: Group = Group { open: "[", between: "|", close: "]", marked: "*]" };
    static OTHER: Group = Group { open: "(", between: ",", close: ")", marked: ")" };

    fn entry(id: u64, text: &str) -> Entry {
        Entry { id: EntryId(id), item: Item::user(Origin::Task, text) }
    }

    fn write(item: &Item, pen: &mut Pen<'_>) {
        let Item::User(message) = item else { panic!() };
        let group = if message.text.starts_with('!') { &OTHER } else { &USER };
        pen.add(group, |out| out.extend_from_slice(message.text.as_bytes()));
    }

    fn whole(script: &mut Script, entries: &[Entry]) -> String {
        let part = script.of(entries, write);
        let mut bytes = part.bytes[..part.end].to_vec();
        Pen::new(&mut bytes, part.open).close(false);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn pieces_of_one_role_share_a_message() {
        let entries = [entry(0, "a"), entry(1, "b"), entry(2, "!c"), entry(3, "d")];
        let mut script = Script::default();
        assert_eq!(whole(&mut script, &entries), "[a|b],(!c),[d]");
        assert_eq!(whole(&mut script, &entries[..2]), "[a|b]");
        assert_eq!(whole(&mut script, &entries), "[a|b],(!c),[d]");
        assert_eq!(whole(&mut script, &[]), "");
    }

    #[test]
    fn an_entry_is_encoded_once_and_what_was_written_stays() {
        let mut script = Script::default();
        let entries: Vec<_> = (0..10).map(|id| entry(id, "12345678")).collect();
        let mut before = Vec::new();
        for count in 1..=10 {
            let part = script.of(&entries[..count], write);
            assert!(part.bytes.starts_with(&before));
            assert_eq!(script.encoded(), 9 * count as u64);
            before = part.bytes[..part.end].to_vec();
        }
    }

    #[test]
    fn after_a_compaction_only_what_changed_is_written_anew() {
        let mut script = Script::default();
        let all = [entry(0, "task"), entry(1, "old"), entry(2, "new")];
        assert_eq!(whole(&mut script, &all), "[task|old|new]");
        let encoded = script.encoded();
        let compacted = [entry(0, "task"), entry(3, "sum"), entry(2, "new")];
        assert_eq!(whole(&mut script, &compacted), "[task|sum|new]");
        assert_eq!(script.encoded() - encoded, 8);
    }

    #[test]
    fn a_request_that_is_under_way_keeps_its_bytes() {
        let mut script = Script::default();
        let first = script.of(&[entry(0, "a")], write);
        let second = script.of(&[entry(1, "b")], write);
        assert_eq!(
            (&first.bytes[..first.end], &second.bytes[..second.end]),
            (&b"[a"[..], &b"[b"[..])
        );
    }

    #[test]
    fn a_mark_is_set_where_the_newest_piece_ends() {
        let mut out = Vec::new();
        let mut pen = Pen::new(&mut out, Some(&USER));
        pen.add(&USER, |out| out.push(b'x'));
        assert!(pen.is_in(&USER) && !pen.is_in(&OTHER));
        pen.close(true);
        assert_eq!(out, b"|x*]");
    }
}
