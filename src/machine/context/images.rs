//! Omission of images from a conversation. If space is missing, images are omitted first.

use std::borrow::Cow;
use std::sync::Arc;

use super::conversation::{ConversationEntry, EntryId};
use crate::types::{
    ConversationItem, Digest, Image, ImageBudget, ToolExchange, ToolResult, UserMessage,
};

/// The maximum number of images in a conversation. Providers accept about a hundred in one request.
pub(crate) const MAX_IMAGES: usize = 80;

/// The number of images that stay when there are too many. It is well below the maximum, because each omission
/// invalidates the provider's cache of the conversation.
pub(crate) const KEPT_IMAGES: usize = 40;

/// Returns the number of images of an item.
pub(crate) fn count_images(item: &ConversationItem) -> usize {
    match item {
        ConversationItem::User(message) => message.images.len(),
        ConversationItem::Assistant(_) => 0,
        ConversationItem::Exchange(exchange) => {
            exchange.results().iter().map(|result| result.images.len()).sum()
        }
    }
}

/// Returns the item with text in place of its images; `None` if it has none.
pub(crate) fn omit_images(item: &ConversationItem) -> Option<ConversationItem> {
    if count_images(item) == 0 {
        return None;
    }
    match item {
        ConversationItem::User(message) => {
            let text = Image::omit_all(&message.text, &message.images);
            Some(ConversationItem::User(UserMessage::new(message.origin, text)))
        }
        ConversationItem::Assistant(_) => None,
        ConversationItem::Exchange(exchange) => {
            let results = exchange.results().iter().map(|result| {
                let text = Image::omit_all(&result.text, &result.images);
                ToolResult { text, images: Box::default(), ..result.clone() }
            });
            let results: Arc<[ToolResult]> = results.collect();
            ToolExchange::new(exchange.reply().clone(), results)
                .ok()
                .map(ConversationItem::Exchange)
        }
    }
}

/// Returns the number of images of an item, and the bytes of their content.
fn measure_images(item: &ConversationItem) -> (u64, u64) {
    let measure = |images: &[Image]| {
        images
            .iter()
            .fold((0, 0), |(count, bytes), image| (count + 1, bytes + image.data.len() as u64))
    };
    match item {
        ConversationItem::User(message) => measure(&message.images),
        ConversationItem::Assistant(_) => (0, 0),
        ConversationItem::Exchange(exchange) => {
            let results = exchange.results().iter().map(|result| measure(&result.images));
            results.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        }
    }
}

/// Returns the entries with the images that a provider accepts in one request: the oldest images are omitted. The
/// number of omitted images grows in steps, so that successive requests have the same beginning.
pub(crate) fn fit_to_budget(
    entries: &[ConversationEntry],
    budget: ImageBudget,
) -> Cow<'_, [ConversationEntry]> {
    let sizes: Vec<_> = entries.iter().map(|entry| measure_images(&entry.item)).collect();
    let excess = |total: u64, most: u64| match total.saturating_sub(most) {
        0 => 0,
        over => over.next_multiple_of((most / 4).max(1)),
    };
    let mut count = excess(sizes.iter().map(|size| size.0).sum(), budget.count);
    let mut bytes = excess(sizes.iter().map(|size| size.1).sum(), budget.bytes);
    if (count, bytes) == (0, 0) {
        return Cow::Borrowed(entries);
    }
    let newest = sizes.iter().rposition(|size| size.0 > 0);
    let newest = newest.filter(|at| sizes[*at].0 <= budget.count && sizes[*at].1 <= budget.bytes);
    let omit = |(index, entry): (usize, &ConversationEntry)| {
        if (count, bytes) == (0, 0) || Some(index) == newest {
            return entry.clone();
        }
        count = count.saturating_sub(sizes[index].0);
        bytes = bytes.saturating_sub(sizes[index].1);
        without_images(entry)
    };
    entries.iter().enumerate().map(omit).collect::<Vec<_>>().into()
}

/// Returns an entry without images for one request.
pub(crate) fn without_images(entry: &ConversationEntry) -> ConversationEntry {
    match omit_images(&entry.item) {
        Some(item) => {
            let digest = Digest::of("without images").with_bytes(&entry.id.0.to_le_bytes());
            ConversationEntry { id: EntryId::of_changed(digest), item }
        }
        None => entry.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::context::context_usage::ContentSize;
    use crate::machine::effect::{CompactionSummary, ConversationChange};
    use crate::machine::{Conversation, Machine};
    use crate::types::{
        ContextLimits, ImageType, MessageOrigin, Reply, ReplyFinish, ReplyPart, RunRules, Tokens,
        ToolCall, ToolStatus, Usage,
    };

    /// Returns an image of a thousand tokens.
    fn image() -> Image {
        Image {
            name: "a.png".into(),
            media_type: ImageType::Png,
            width: 8,
            height: 6,
            tokens: Tokens(1_000),
            data: "AAAA".into(),
        }
    }

    fn message() -> UserMessage {
        let (origin, text) = (MessageOrigin::Task, "look [image a.png, 8x6]".into());
        UserMessage { origin, text, images: vec![image()] }
    }

    fn exchange(id: &str) -> ConversationItem {
        let call = ToolCall::new(id.into(), "read_file", &format!("{{\"n\":{id}}}"));
        let result = ToolResult::new(id.into(), ToolStatus::Ok, format!("{id} [image a.png, 8x6]"));
        let (finish, usage) = (ReplyFinish::ToolCalls, Usage::default());
        let reply = Reply { parts: [ReplyPart::Call(call)].into(), finish, usage, model: None };
        let results = [result.with_images(vec![image()])];
        ConversationItem::Exchange(ToolExchange::new(reply, results).unwrap())
    }

    fn conversation(exchanges: usize) -> Conversation {
        let mut conversation = Conversation::new(0);
        let task = ConversationItem::User(message());
        conversation.apply(ConversationChange::Append { item: task });
        for index in 0..exchanges {
            let item = exchange(&index.to_string());
            conversation.apply(ConversationChange::Append { item });
        }
        conversation
    }

    fn counts(conversation: &Conversation) -> Vec<usize> {
        conversation.entries().iter().map(|entry| count_images(&entry.item)).collect()
    }

    #[test]
    fn images_count_as_their_tokens() {
        let machine = Machine::start(
            RunRules::default(),
            Conversation::new(0),
            ConversationItem::user(MessageOrigin::Task, "task"),
        );
        let machine = machine.0;
        let sizes = [vec![], vec![message()]].map(|messages| machine.request_size(&messages, 0));
        let estimate = sizes[1].estimate.saturating_sub(sizes[0].estimate).0;
        assert!((1_000..1_300).contains(&estimate), "{estimate}");
        let estimate = conversation(3).request_size().estimate.0;
        assert!((4_000..5_200).contains(&estimate), "{estimate}");
    }

    #[test]
    fn a_compaction_leaves_out_images_before_turns() {
        let mut conversation = conversation(4);
        let ids: Vec<_> = conversation.entries().iter().map(|entry| entry.id).collect();
        let summary = CompactionSummary::Mechanical;
        let target_size = Tokens(2_700);
        conversation.apply(ConversationChange::Compact { summary, keep: 4, target_size });
        // The task, two of the four turns without their image, and two with it.
        assert_eq!(counts(&conversation), [0, 0, 0, 1, 1]);
        let entries = conversation.entries();
        let ConversationItem::User(task) = &entries[0].item else { panic!("the task is gone") };
        assert_eq!(&*task.text, "look [image a.png, 8x6, not shown]");
        // Cached encodings of the originals aren't used.
        assert!(ids[..3].iter().all(|id| entries.iter().all(|entry| entry.id != *id)));
        assert!(conversation.request_size().estimate <= target_size);
    }

    #[test]
    fn a_request_that_is_too_large_is_sent_without_images() {
        let conversation = conversation(2);
        let rules = ContextLimits { window: Tokens(1_000), ..ContextLimits::default() };
        let (sent, size) =
            conversation.fit_to_window(conversation.entries(), ContentSize::ZERO, &rules);
        assert!(sent.iter().all(|entry| count_images(&entry.item) == 0));
        assert!(size.bytes < 1_000 && sent[0].id != conversation.entries()[0].id);
    }

    #[test]
    fn a_request_that_is_too_large_without_images_has_shorter_results() {
        let mut conversation = conversation(1);
        let item = exchange(&"x".repeat(9_000));
        conversation.apply(ConversationChange::Append { item });
        let fitted = |window| {
            let rules = ContextLimits { window: Tokens(window), ..ContextLimits::default() };
            conversation
                .fit_to_window(conversation.entries(), ContentSize::of_own(100), &rules)
                .1
                .bytes
        };
        // The name is in the call, its arguments and its result. Only the result can be shortened.
        assert!(fitted(100_000) > 27_000);
        assert!((18_000..20_000).contains(&fitted(6_000)));
    }

    #[test]
    fn there_are_never_too_many_images_for_one_request() {
        let counts = counts(&conversation(MAX_IMAGES));
        assert_eq!(counts.iter().sum::<usize>(), KEPT_IMAGES);
        assert_eq!((counts[0], counts.last()), (0, Some(&1)));
        let all: usize = self::counts(&conversation(MAX_IMAGES - 1)).iter().sum();
        assert_eq!(all, MAX_IMAGES);
    }

    #[test]
    fn a_request_has_the_newest_images_that_the_provider_takes() {
        let counts_of = |conversation: &Conversation, count, bytes| -> Vec<usize> {
            let images = ImageBudget { count, bytes };
            let rules = ContextLimits { images, ..ContextLimits::default() };
            let (sent, _) =
                conversation.fit_to_window(conversation.entries(), ContentSize::ZERO, &rules);
            sent.iter().map(|entry| count_images(&entry.item)).collect()
        };
        let ten = conversation(9);
        let counts = |count, bytes| counts_of(&ten, count, bytes);
        // Ten images of four bytes. Two are omitted at a time.
        assert_eq!(counts(8, 100), [0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(counts(9, 100), [0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(counts(100, 36), [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(counts(1, 100), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(counts(100, 3), [0; 10]);
        assert_eq!(counts(10, 40), [1; 10]);
        // The newest image stays if it fits, although an entry without images follows it.
        let mut large = conversation(3);
        let image = Image { data: "A".repeat(36).into(), ..image() };
        for images in [vec![image], vec![]] {
            let item = ConversationItem::User(UserMessage { images, ..message() });
            large.apply(ConversationChange::Append { item });
        }
        assert_eq!(counts_of(&large, 100, 36), [0, 0, 0, 0, 1, 0]);
    }
}
