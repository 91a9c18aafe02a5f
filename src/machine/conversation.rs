//! The conversation: a typed history, folded from what the machine decides.
//!
//! Its entries hold the invariant of every wire format: a tool call and its answer are one entry ([`Exchange`](crate::model::Exchange)), so no
//! cut can come between them, and the user's own words are never replaced.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::context::{self, Gauge};
use super::effect::{Change, Summary};
use super::event::Facts;
use super::ledger::Ledger;
use super::{rereads, shorten};
use crate::model::{ContextRules, Item, Origin, Tokens, Usage};

/// The history as the model sees it, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conversation {
    entries: Vec<Entry>,
    next: EntryId,
    gauge: Gauge,
    /// What stands for the entries that are gone.
    #[serde(default)]
    ledger: Ledger,
}

/// One entry with its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Its name; never used twice, so that what was encoded once can be found again.
    pub id: EntryId,
    /// What it says.
    pub item: Item,
}

/// The name of an entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EntryId(pub u64);

impl Conversation {
    /// Returns an empty conversation that goes along with this many bytes of system prompt and tools.
    pub fn new(fixed: u64) -> Self {
        let (entries, ledger) = (Vec::new(), Ledger::default());
        Self { entries, next: EntryId(0), gauge: Gauge::new(fixed), ledger }
    }

    /// Returns the entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns how large it is.
    pub fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    /// Returns what the machine wants to know of a call with all of it.
    pub fn facts(&self) -> Facts {
        let exchanges = self.entries.iter().filter(|entry| is_turn(&entry.item)).count();
        Facts {
            context: self.gauge.estimate(),
            bound: self.gauge.bound(),
            exchanges: u32::try_from(exchanges).unwrap_or(u32::MAX),
            shortened: Tokens::ZERO,
        }
    }

    /// Returns the entries that a compaction replaces when it keeps this many exchanges.
    pub fn older(&self, keep: u32) -> &[Entry] {
        &self.entries[..self.cut(keep)]
    }

    /// Returns entries of it as they are sent beside this many bytes of system prompt and instruction, and the bytes of
    /// that request. Where it would be too full, the longest tool results are shortened.
    pub(super) fn fitted<'a>(
        &self,
        entries: &'a [Entry],
        beside: u64,
        rules: &ContextRules,
    ) -> (Cow<'a, [Entry]>, u64) {
        let whole = beside + bytes(entries);
        if self.gauge.measure(whole) <= rules.window.percent(rules.full) {
            return (Cow::Borrowed(entries), whole);
        }
        let room = self.gauge.room(rules.window.percent(rules.threshold));
        let entries = shorten::results(entries, whole.saturating_sub(room));
        let sent = beside + bytes(&entries);
        (Cow::Owned(entries), sent)
    }

    /// Returns what is known for certain of what a compaction replaces, and of what others replaced before it: a line
    /// for each kind.
    pub(super) fn records(&self, keep: u32) -> String {
        let mut ledger = self.ledger.clone();
        for entry in self.older(keep) {
            ledger.add(&entry.item);
        }
        ledger.records()
    }

    /// Applies what the machine decided.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Append { item } => self.push(item),
            Change::Compact { summary, keep, fit } => self.compact(&summary, keep, fit),
        }
    }

    /// Takes the provider's count of what was just sent into account.
    pub fn count(&mut self, usage: &Usage) {
        self.gauge.count(usage);
    }

    fn push(&mut self, item: Item) {
        let item = match item {
            Item::Exchange(exchange) => Item::Exchange(rereads::noted(&self.entries, exchange)),
            Item::User(_) | Item::Assistant(_) => item,
        };
        self.gauge.add(context::bytes(&item));
        let id = self.next;
        self.next.0 += 1;
        self.entries.push(Entry { id, item });
    }

    /// Returns where the newest `keep` turns begin; the words with which the user began always come before.
    fn cut(&self, keep: u32) -> usize {
        let turns = self.entries.iter().enumerate().rev().filter(|(_, entry)| is_turn(&entry.item));
        let kept = turns.map(|(index, _)| index).take(keep as usize);
        kept.last().unwrap_or(self.entries.len())
    }

    fn compact(&mut self, summary: &Summary, keep: u32, fit: Tokens) {
        let mut newer = VecDeque::from(self.entries.split_off(self.cut(keep)));
        let older = std::mem::take(&mut self.entries);
        for entry in &older {
            self.ledger.add(&entry.item);
        }
        if let Summary::Written(text) = summary {
            self.ledger.write(text);
        }
        self.retain_pinned(older);
        // Then whole turns go, oldest first, until the rest fits beside the summary; the newest one stays.
        let mut turns = newer.iter().filter(|entry| is_turn(&entry.item)).count();
        while turns > 1 && self.gauge.estimate() + self.size(self.ledger.text()) > fit {
            let Some(entry) = newer.pop_front() else { break };
            turns -= usize::from(is_turn(&entry.item));
            self.ledger.add(&entry.item);
            self.retain_pinned(vec![entry]);
        }
        if let Some(text) = self.ledger.text() {
            self.push(Item::user(Origin::Summary, text));
        }
        self.entries.extend(newer);
    }

    fn size(&self, text: Option<String>) -> Tokens {
        self.gauge.tokens(text.map_or(0, |text| context::bytes(&Item::user(Origin::Summary, text))))
    }

    /// Keeps the user's own words, and takes everything else out of the count.
    fn retain_pinned(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            if is_pinned(&entry.item) {
                self.entries.push(entry);
            } else {
                self.gauge.remove(context::bytes(&entry.item));
            }
        }
    }
}

fn bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| context::bytes(&entry.item)).sum()
}

/// Returns whether an entry is the user's own word.
fn is_pinned(item: &Item) -> bool {
    matches!(item, Item::User(message) if message.origin.is_pinned())
}

/// Returns whether an entry is something the model said, with all that belongs to it.
fn is_turn(item: &Item) -> bool {
    match item {
        Item::User(_) => false,
        Item::Assistant(_) | Item::Exchange(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Exchange, FileAction, FileChange, Finish, Part, Reply, ToolCall, ToolResult, ToolStatus,
    };

    fn exchange(name: &str, text: &str) -> Item {
        let call = ToolCall::new(name.into(), name, "{}");
        let change =
            FileChange { path: name.into(), action: FileAction::Created, added: 1, removed: 0 };
        let mut result = ToolResult::new(call.id.clone(), ToolStatus::Ok, text);
        result.changes.push(change);
        let reply = Reply {
            parts: [Part::Call(call)].into(),
            finish: Finish::ToolCalls,
            usage: Usage::default(),
            model: None,
        };
        Item::Exchange(Exchange::new(reply, [result]).unwrap())
    }

    fn conversation(turns: usize) -> Conversation {
        let mut conversation = Conversation::new(0);
        conversation.push(Item::user(Origin::Task, "the task"));
        for turn in 0..turns {
            conversation.push(exchange(&format!("tool{turn}"), &"x".repeat(350)));
            if turn == 1 {
                conversation.push(Item::user(Origin::Steering, "[STEERING] mind the gap"));
            }
        }
        conversation
    }

    fn compacted(turns: usize, keep: u32, fit: u64, summary: Summary) -> Conversation {
        let mut conversation = conversation(turns);
        conversation.apply(Change::Compact { summary, keep, fit: Tokens(fit) });
        conversation
    }

    fn texts(conversation: &Conversation) -> Vec<String> {
        let text = |entry: &Entry| match &entry.item {
            Item::User(message) => message.text.to_string(),
            Item::Assistant(reply) => reply.text().to_string(),
            Item::Exchange(exchange) => {
                exchange.reply().calls().map(|c| c.name.to_string()).collect()
            }
        };
        conversation.entries().iter().map(text).collect()
    }

    #[test]
    fn the_newest_exchanges_and_the_users_words_stay() {
        let conversation = compacted(5, 2, 100_000, Summary::Written("did things".into()));
        let texts = texts(&conversation);
        let expected = ["the task", "[STEERING] mind the gap", &texts[2], "tool3", "tool4"];
        assert_eq!(texts, expected);
        assert!(texts[2].contains("did things\n\nFiles that changed: tool0 (created), tool1"));
    }

    #[test]
    fn a_mechanical_summary_tells_tools_and_files() {
        let conversation = compacted(3, 1, 100_000, Summary::Mechanical);
        let summary = "[SUMMARY] Earlier parts of this conversation were replaced by this summary.\n\n\
                       Files that changed: tool0 (created), tool1 (created).\n\
                       Tools that ran: tool0 ×1, tool1 ×1.";
        assert_eq!(texts(&conversation)[2], summary);
    }

    #[test]
    fn further_exchanges_go_until_it_fits_but_the_newest_stays() {
        let conversation = compacted(6, 6, 300, Summary::Mechanical);
        assert!(conversation.facts().context <= Tokens(300));
        assert_eq!(conversation.facts().exchanges, 1);
        assert_eq!(compacted(6, 6, 0, Summary::Mechanical).facts().exchanges, 1);
    }

    #[test]
    fn a_summary_of_a_summary_keeps_what_it_said() {
        let mut conversation = compacted(4, 1, 100_000, Summary::Written("did things".into()));
        conversation.push(exchange("late", ""));
        conversation.apply(Change::Compact {
            summary: Summary::Mechanical,
            keep: 1,
            fit: Tokens(100_000),
        });
        let texts = texts(&conversation);
        assert!(texts[2].contains("did things\n\nFiles that changed: tool0"), "{texts:?}");
        assert!(texts[2].contains("tool2 ×1, tool3 ×1."), "{texts:?}");
    }

    #[test]
    fn the_count_is_that_of_the_entries_whatever_was_compacted() {
        for keep in 0..4 {
            for fit in [0, 200, 100_000] {
                let conversation = compacted(5, keep, fit, Summary::Mechanical);
                let bytes = conversation.entries().iter().map(|entry| context::bytes(&entry.item));
                let mut fresh = Gauge::new(0);
                bytes.for_each(|bytes| fresh.add(bytes));
                assert_eq!(conversation.gauge().estimate(), fresh.estimate());
            }
        }
    }

    #[test]
    fn entries_keep_their_names() {
        let before = conversation(3);
        let mut after = before.clone();
        after.apply(Change::Compact {
            summary: Summary::Mechanical,
            keep: 1,
            fit: Tokens(100_000),
        });
        let kept = after.entries().last().unwrap();
        assert_eq!(Some(kept), before.entries().last());
        assert!(after.entries().iter().all(|entry| {
            match before.entries().iter().find(|e| e.id == entry.id) {
                Some(same) => same == entry,
                None => {
                    matches!(&entry.item, Item::User(message) if message.origin == Origin::Summary)
                }
            }
        }));
    }

    /// The summary of what went before is made anew, and stands where it stood.
    #[test]
    fn to_keep_more_turns_than_there_are_is_to_keep_all() {
        let before = compacted(3, 1, 100_000, Summary::Mechanical);
        let mut after = before.clone();
        let (summary, keep, fit) = (Summary::Mechanical, 9, Tokens(100_000));
        after.apply(Change::Compact { summary, keep, fit });
        assert_eq!(texts(&after), texts(&before));
    }

    #[test]
    fn what_just_fits_stays() {
        let all = compacted(6, 3, 100_000, Summary::Mechanical);
        // The summary is measured by itself.
        let summary = context::bytes(&all.entries()[2].item);
        let mut rest = *all.gauge();
        rest.remove(summary);
        let size = (rest.estimate() + rest.tokens(summary)).0;
        assert_eq!(compacted(6, 3, size, Summary::Mechanical).facts().exchanges, 3);
        assert_eq!(compacted(6, 3, size - 1, Summary::Mechanical).facts().exchanges, 2);
    }

    #[test]
    fn what_is_summed_up_and_its_records_are_those_of_the_entries_that_go() {
        let conversation = conversation(3);
        assert_eq!(conversation.older(1).last().unwrap().id, EntryId(3));
        assert!(conversation.records(1).contains("tool0 ×1, tool1 ×1."));
        assert_eq!(conversation.records(3), "");
    }
}
