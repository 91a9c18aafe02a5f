//! The conversation: a typed history that is built from the machine's decisions.
//!
//! Its entries hold the invariants of every API format: a tool call and its result are one entry
//! ([`ToolExchange`](crate::types::ToolExchange)), so that they can't be separated, and the user's messages are never
//! replaced.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::machine::context::context_usage::{self, ContentSize, ContextUsage};
use crate::machine::context::images;
use crate::machine::context::repeated_results;
use crate::machine::context::shorten;
use crate::machine::context::work_record::WorkRecord;
use crate::machine::effect::{CompactionSummary, ConversationChange};
use crate::machine::event::RequestSize;
use crate::types::{ContextLimits, ConversationItem, Digest, MessageOrigin, Tokens, Usage};

/// The history as the model sees it, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conversation {
    entries: Vec<ConversationEntry>,
    next_id: EntryId,
    context_usage: ContextUsage,
    /// The record that replaces compacted entries.
    #[serde(default)]
    work_record: WorkRecord,
}

/// An entry of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConversationEntry {
    /// The id. It is never reused, so that each model can cache encodings by it. After a change of the model, entries
    /// with blocks of the earlier model are replaced by new entries without them.
    pub id: EntryId,
    /// The item.
    pub item: ConversationItem,
}

/// The id of an entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EntryId(pub u64);

impl EntryId {
    /// Returns the id of an entry that is changed for one request. No entry of a conversation has such an id, so that
    /// cached encodings of the original aren't used for it.
    pub(crate) fn of_changed(digest: Digest) -> Self {
        Self(digest.0 | 1 << 63)
    }
}

impl Conversation {
    /// Creates an empty conversation, with this many bytes of system prompt and tools in each request.
    pub fn new(fixed: u64) -> Self {
        let (context_usage, work_record) = (ContextUsage::new(fixed), WorkRecord::default());
        Self { entries: Vec::new(), next_id: EntryId(0), context_usage, work_record }
    }

    /// Returns the entries, oldest first.
    pub fn entries(&self) -> &[ConversationEntry] {
        &self.entries
    }

    /// Returns the size of the conversation.
    pub fn context_usage(&self) -> &ContextUsage {
        &self.context_usage
    }

    /// Returns the size of a model call with the whole conversation.
    pub fn request_size(&self) -> RequestSize {
        let exchanges = self.entries.iter().filter(|entry| is_model_turn(&entry.item)).count();
        RequestSize {
            estimate: self.context_usage.estimate(),
            upper_bound: self.context_usage.upper_bound(),
            exchanges: u32::try_from(exchanges).unwrap_or(u32::MAX),
            shortened_estimate: Tokens::ZERO,
        }
    }

    /// Returns the entries that a compaction replaces if it keeps this many exchanges.
    pub fn entries_to_compact(&self, keep: u32) -> &[ConversationEntry] {
        &self.entries[..self.split_index(keep)]
    }

    /// Returns entries as they are sent with a system prompt and an instruction of this size, and the size of that
    /// request. If they don't fit, images are omitted, and the longest tool results are shortened.
    pub(crate) fn fit_to_window<'a>(
        &self,
        entries: &'a [ConversationEntry],
        beside: ContentSize,
        rules: &ContextLimits,
    ) -> (Cow<'a, [ConversationEntry]>, ContentSize) {
        let entries = images::fit_to_budget(entries, rules.images);
        let whole = beside + entries_size(&entries);
        if self.context_usage.estimate_request(whole.bytes) <= rules.window.percent(rules.full_at) {
            return (entries, whole);
        }
        let entries: Vec<_> = entries.iter().map(images::without_images).collect();
        let whole = beside + entries_size(&entries);
        if self.context_usage.estimate_request(whole.bytes) <= rules.window.percent(rules.full_at) {
            return (Cow::Owned(entries), whole);
        }
        let limit = self.context_usage.bytes_within(rules.window.percent(rules.threshold));
        let entries = shorten::shorten_results(&entries, whole.bytes.saturating_sub(limit));
        let sent = beside + entries_size(&entries);
        (Cow::Owned(entries), sent)
    }

    /// Returns the record of the entries that a compaction replaces, and of those that earlier ones have replaced.
    pub(crate) fn describe_work(&self, keep: u32) -> String {
        let mut record = self.work_record.clone();
        for entry in self.entries_to_compact(keep) {
            record.add(&entry.item);
        }
        record.facts_text()
    }

    /// Applies a change.
    pub fn apply(&mut self, change: ConversationChange) {
        match change {
            ConversationChange::Append { item } => self.push(item),
            ConversationChange::Compact { summary, keep, target_size } => {
                self.compact(&summary, keep, target_size);
            }
            ConversationChange::ChangeModel => self.drop_opaque_blocks(),
        }
    }

    /// Calibrates the size with the provider's count of the last request.
    pub fn calibrate(&mut self, usage: &Usage) {
        self.context_usage.calibrate(usage);
    }

    fn push(&mut self, item: ConversationItem) {
        let item = match item {
            ConversationItem::Exchange(exchange) => ConversationItem::Exchange(
                repeated_results::annotate_repeated_results(&self.entries, exchange),
            ),
            ConversationItem::User(_) | ConversationItem::Assistant(_) => item,
        };
        self.context_usage.add(context_usage::item_size(&item));
        let has_images = images::count_images(&item) > 0;
        let entry = ConversationEntry { id: self.take_id(), item };
        self.entries.push(entry);
        if has_images {
            self.limit_images();
        }
    }

    fn take_id(&mut self) -> EntryId {
        let id = self.next_id;
        self.next_id.0 += 1;
        id
    }

    /// Omits the oldest images if there are too many for one request. The newest entry keeps its images.
    fn limit_images(&mut self) {
        let count = |entry: &ConversationEntry| images::count_images(&entry.item);
        let mut total: usize = self.entries.iter().map(count).sum();
        if total <= images::MAX_IMAGES {
            return;
        }
        for index in 0..self.entries.len().saturating_sub(1) {
            if total <= images::KEPT_IMAGES {
                break;
            }
            total -= count(&self.entries[index]);
            let entry = self.entries[index].clone();
            self.entries[index] = self.omit_images(entry);
        }
    }

    /// Returns the entry with text in place of its images.
    fn omit_images(&mut self, entry: ConversationEntry) -> ConversationEntry {
        let Some(item) = images::omit_images(&entry.item) else { return entry };
        self.context_usage.remove(context_usage::item_size(&entry.item));
        self.context_usage.add(context_usage::item_size(&item));
        ConversationEntry { id: self.take_id(), item }
    }

    /// Removes the blocks that are specific to the previous model, and entries with nothing else.
    fn drop_opaque_blocks(&mut self) {
        for entry in std::mem::take(&mut self.entries) {
            let item = match &entry.item {
                ConversationItem::Assistant(reply) if reply.has_opaque_blocks() => {
                    ConversationItem::Assistant(reply.without_opaque_blocks())
                }
                ConversationItem::Exchange(exchange) if exchange.reply().has_opaque_blocks() => {
                    ConversationItem::Exchange(exchange.without_opaque_blocks())
                }
                ConversationItem::User(_)
                | ConversationItem::Assistant(_)
                | ConversationItem::Exchange(_) => {
                    self.entries.push(entry);
                    continue;
                }
            };
            self.context_usage.remove(context_usage::item_size(&entry.item));
            if matches!(&item, ConversationItem::Assistant(reply) if reply.parts.is_empty()) {
                continue;
            }
            self.context_usage.add(context_usage::item_size(&item));
            self.entries.push(ConversationEntry { id: entry.id, item });
        }
        self.context_usage.forget_count();
    }

    /// Returns the index at which the newest `keep` turns begin. The user's first messages are always before it.
    fn split_index(&self, keep: u32) -> usize {
        let turns =
            self.entries.iter().enumerate().rev().filter(|(_, entry)| is_model_turn(&entry.item));
        let kept = turns.map(|(index, _)| index).take(keep as usize);
        kept.last().unwrap_or(self.entries.len())
    }

    fn compact(&mut self, summary: &CompactionSummary, keep: u32, target_size: Tokens) {
        let mut newer = VecDeque::from(self.entries.split_off(self.split_index(keep)));
        let older = std::mem::take(&mut self.entries);
        for entry in &older {
            self.work_record.add(&entry.item);
        }
        if let CompactionSummary::FromModel(text) = summary {
            self.work_record.set_summary(text);
        }
        self.retain_pinned(older);
        // Then images are omitted, oldest first. The newest entry keeps its images.
        for index in 0..newer.len().saturating_sub(1) {
            if images::count_images(&newer[index].item) == 0 {
                continue;
            }
            if self.fits_with_summary(target_size) {
                break;
            }
            let entry = newer[index].clone();
            newer[index] = self.omit_images(entry);
        }
        // Then whole turns are replaced, oldest first, until the rest fits with the summary. The newest turn stays.
        let mut turns = newer.iter().filter(|entry| is_model_turn(&entry.item)).count();
        while turns > 1 && !self.fits_with_summary(target_size) {
            let Some(entry) = newer.pop_front() else { break };
            turns -= usize::from(is_model_turn(&entry.item));
            self.work_record.add(&entry.item);
            self.retain_pinned(vec![entry]);
        }
        if let Some(text) = self.work_record.text() {
            self.push(ConversationItem::user(MessageOrigin::Summary, text));
        }
        self.entries.extend(newer);
    }

    fn size_with_summary(&self, text: Option<String>) -> Tokens {
        self.context_usage.estimate_tokens(text.map_or(0, |text| {
            context_usage::item_size(&ConversationItem::user(MessageOrigin::Summary, text)).bytes
        }))
    }

    /// Returns whether the remaining entries fit into this size together with the summary.
    fn fits_with_summary(&self, target_size: Tokens) -> bool {
        let summary = self.size_with_summary(self.work_record.text());
        self.context_usage.estimate() + summary <= target_size
    }

    /// Keeps the user's messages, and subtracts everything else from the size.
    fn retain_pinned(&mut self, entries: Vec<ConversationEntry>) {
        for entry in entries {
            if is_pinned(&entry.item) {
                let entry = self.omit_images(entry);
                self.entries.push(entry);
            } else {
                self.context_usage.remove(context_usage::item_size(&entry.item));
            }
        }
    }
}

fn entries_size(entries: &[ConversationEntry]) -> ContentSize {
    entries.iter().map(|entry| context_usage::item_size(&entry.item)).sum()
}

/// Returns whether an item is a message of the user.
fn is_pinned(item: &ConversationItem) -> bool {
    matches!(item, ConversationItem::User(message) if message.origin.is_pinned())
}

/// Returns whether an item is a reply of the model, with its results.
fn is_model_turn(item: &ConversationItem) -> bool {
    match item {
        ConversationItem::User(_) => false,
        ConversationItem::Assistant(_) | ConversationItem::Exchange(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{
        FileAction, FileChange, OpaqueBlock, Reply, ReplyFinish, ReplyPart, ToolCall, ToolExchange,
        ToolResult, ToolStatus,
    };

    fn exchange(name: &str, text: &str) -> ConversationItem {
        let call = ToolCall::new(name.into(), name, "{}");
        let change =
            FileChange { path: name.into(), action: FileAction::Created, added: 1, removed: 0 };
        let mut result = ToolResult::new(call.id.clone(), ToolStatus::Ok, text);
        result.changes.push(change);
        let reply = Reply {
            parts: [ReplyPart::Call(call)].into(),
            finish: ReplyFinish::ToolCalls,
            usage: Usage::default(),
            model: None,
        };
        ConversationItem::Exchange(ToolExchange::new(reply, [result]).unwrap())
    }

    fn conversation(turns: usize) -> Conversation {
        let mut conversation = Conversation::new(0);
        conversation.push(ConversationItem::user(MessageOrigin::Task, "the task"));
        for turn in 0..turns {
            conversation.push(exchange(&format!("tool{turn}"), &"x".repeat(350)));
            if turn == 1 {
                conversation.push(ConversationItem::user(
                    MessageOrigin::Steering,
                    "[STEERING] mind the gap",
                ));
            }
        }
        conversation
    }

    fn compacted(
        turns: usize,
        keep: u32,
        target_size: u64,
        summary: CompactionSummary,
    ) -> Conversation {
        let mut conversation = conversation(turns);
        conversation.apply(ConversationChange::Compact {
            summary,
            keep,
            target_size: Tokens(target_size),
        });
        conversation
    }

    #[test]
    fn another_model_gets_no_blocks_of_an_earlier_one_and_makes_its_own_count() {
        let block = || {
            let (wire, json) = ("wire".into(), "{}".into());
            ReplyPart::Opaque(OpaqueBlock { wire, json })
        };
        let reply = |parts: &[ReplyPart]| Reply {
            parts: parts.into(),
            ..Reply::text_only("", ReplyFinish::Stop, Usage::default())
        };
        let mut conversation = Conversation::new(0);
        conversation.push(ConversationItem::user(MessageOrigin::Task, "the task"));
        let size = conversation.request_size();
        conversation.push(ConversationItem::Assistant(reply(&[block()])));
        conversation.push(ConversationItem::Assistant(reply(&[block(), block()])));
        conversation.calibrate(&Usage { input: Tokens(9_000), ..Usage::default() });
        conversation.apply(ConversationChange::ChangeModel);
        assert_eq!(conversation.entries().len(), 1);
        assert_eq!(conversation.request_size().upper_bound, size.upper_bound);
        let text = ReplyPart::Text("text".into());
        conversation.push(ConversationItem::Assistant(reply(&[block(), text.clone()])));
        conversation.apply(ConversationChange::ChangeModel);
        let expected = ConversationItem::Assistant(reply(&[text]));
        assert_eq!(conversation.entries().last().unwrap().item, expected);
        // An entry without such a block keeps its id, by which its cached encoding is found.
        conversation.push(exchange("plain", "x"));
        let ids: Vec<_> = conversation.entries().iter().map(|entry| entry.id).collect();
        let call = ReplyPart::Call(ToolCall::new("c".into(), "tool", "{}"));
        let calling = |parts: &[ReplyPart]| {
            let reply = Reply { finish: ReplyFinish::ToolCalls, ..reply(parts) };
            let result = ToolResult::new("c".into(), ToolStatus::Ok, "x");
            ConversationItem::Exchange(ToolExchange::new(reply, [result]).unwrap())
        };
        conversation.push(calling(&[block(), call.clone()]));
        conversation.apply(ConversationChange::ChangeModel);
        assert_eq!(conversation.entries().last().unwrap().item, calling(&[call]));
        assert!(ids.iter().zip(conversation.entries()).all(|(id, entry)| *id == entry.id));
    }

    fn texts(conversation: &Conversation) -> Vec<String> {
        let text = |entry: &ConversationEntry| match &entry.item {
            ConversationItem::User(message) => message.text.to_string(),
            ConversationItem::Assistant(reply) => reply.text().to_string(),
            ConversationItem::Exchange(exchange) => {
                exchange.reply().calls().map(|c| c.name.to_string()).collect()
            }
        };
        conversation.entries().iter().map(text).collect()
    }

    #[test]
    fn the_newest_exchanges_and_the_users_messages_stay() {
        let conversation =
            compacted(5, 2, 100_000, CompactionSummary::FromModel("did things".into()));
        let texts = texts(&conversation);
        let expected = ["the task", "[STEERING] mind the gap", &texts[2], "tool3", "tool4"];
        assert_eq!(texts, expected);
        assert!(texts[2].contains("did things\n\nFiles that changed: tool0 (created), tool1"));
    }

    #[test]
    fn a_mechanical_summary_lists_tools_and_files() {
        let conversation = compacted(3, 1, 100_000, CompactionSummary::Mechanical);
        let summary = "[SUMMARY] Earlier parts of this conversation were replaced by this summary.\n\n\
                       Files that changed: tool0 (created), tool1 (created).\n\
                       Tools that ran: tool0 ×1, tool1 ×1.";
        assert_eq!(texts(&conversation)[2], summary);
    }

    #[test]
    fn more_exchanges_are_replaced_until_it_fits_but_the_newest_stays() {
        let conversation = compacted(6, 6, 300, CompactionSummary::Mechanical);
        assert!(conversation.request_size().estimate <= Tokens(300));
        assert_eq!(conversation.request_size().exchanges, 1);
        assert_eq!(compacted(6, 6, 0, CompactionSummary::Mechanical).request_size().exchanges, 1);
    }

    #[test]
    fn a_summary_includes_the_summary_before_it() {
        let mut conversation =
            compacted(4, 1, 100_000, CompactionSummary::FromModel("did things".into()));
        conversation.push(exchange("late", ""));
        conversation.apply(ConversationChange::Compact {
            summary: CompactionSummary::Mechanical,
            keep: 1,
            target_size: Tokens(100_000),
        });
        let texts = texts(&conversation);
        assert!(texts[2].contains("did things\n\nFiles that changed: tool0"), "{texts:?}");
        assert!(texts[2].contains("tool2 ×1, tool3 ×1."), "{texts:?}");
    }

    #[test]
    fn the_size_is_that_of_the_entries_after_any_compactions() {
        for keep in 0..4 {
            for target_size in [0, 200, 100_000] {
                let conversation = compacted(5, keep, target_size, CompactionSummary::Mechanical);
                let mut fresh = ContextUsage::new(0);
                fresh.add(entries_size(conversation.entries()));
                assert_eq!(conversation.context_usage().estimate(), fresh.estimate());
            }
        }
    }

    #[test]
    fn entries_keep_their_ids() {
        let before = conversation(3);
        let mut after = before.clone();
        after.apply(ConversationChange::Compact {
            summary: CompactionSummary::Mechanical,
            keep: 1,
            target_size: Tokens(100_000),
        });
        let kept = after.entries().last().unwrap();
        assert_eq!(Some(kept), before.entries().last());
        assert!(after.entries().iter().all(|entry| {
            match before.entries().iter().find(|e| e.id == entry.id) {
                Some(same) => same == entry,
                None => {
                    matches!(&entry.item, ConversationItem::User(message) if message.origin == MessageOrigin::Summary)
                }
            }
        }));
    }

    /// The summary is written again at the same position.
    #[test]
    fn keeping_more_turns_than_there_are_keeps_all() {
        let before = compacted(3, 1, 100_000, CompactionSummary::Mechanical);
        let mut after = before.clone();
        let (summary, keep, target_size) = (CompactionSummary::Mechanical, 9, Tokens(100_000));
        after.apply(ConversationChange::Compact { summary, keep, target_size });
        assert_eq!(texts(&after), texts(&before));
    }

    #[test]
    fn a_conversation_that_just_fits_stays() {
        let all = compacted(6, 3, 100_000, CompactionSummary::Mechanical);
        // The size of the summary is measured separately.
        let summary = context_usage::item_size(&all.entries()[2].item);
        let mut rest = *all.context_usage();
        rest.remove(summary);
        let size = (rest.estimate() + rest.estimate_tokens(summary.bytes)).0;
        assert_eq!(
            compacted(6, 3, size, CompactionSummary::Mechanical).request_size().exchanges,
            3
        );
        assert_eq!(
            compacted(6, 3, size - 1, CompactionSummary::Mechanical).request_size().exchanges,
            2
        );
    }

    #[test]
    fn the_records_are_those_of_the_entries_that_are_replaced() {
        let conversation = conversation(3);
        assert_eq!(conversation.entries_to_compact(1).last().unwrap().id, EntryId(3));
        assert!(conversation.describe_work(1).contains("tool0 ×1, tool1 ×1."));
        assert_eq!(conversation.describe_work(3), "");
    }

    #[test]
    fn an_entry_that_is_changed_for_one_request_has_an_id_of_its_own() {
        for digest in [0, u64::MAX] {
            assert_eq!(EntryId::of_changed(Digest(digest)).0 >> 63, 1);
        }
    }
}
