//! Leaving out images of a conversation: they are the first that is left out where space is missing.

use std::sync::Arc;

use super::conversation::{ConversationEntry, EntryId};
use crate::model::{ConversationItem, Digest, Image, ToolExchange, ToolResult, UserMessage};

/// The images of a conversation. Providers take about a hundred in one request.
pub(crate) const MAX_IMAGES: usize = 80;

/// The images that stay when there are too many. Fewer, since each time the provider's cache of the conversation is lost.
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

/// Returns entries without images for one request. Those that differ have ids that no entry of a conversation has, so that
/// cached encodings of the originals aren't used.
pub(crate) fn without_images(entries: &[ConversationEntry]) -> Vec<ConversationEntry> {
    let omit = |entry: &ConversationEntry| match omit_images(&entry.item) {
        Some(item) => {
            let digest = Digest::of("without images").with_bytes(&entry.id.0.to_le_bytes());
            ConversationEntry { id: EntryId(digest.0 | 1 << 63), item }
        }
        None => entry.clone(),
    };
    entries.iter().map(omit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::effect::{CompactionSummary, ConversationChange};
    use crate::machine::{Conversation, Machine};
    use crate::model::{
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
        let (sent, bytes) = conversation.fit_to_window(conversation.entries(), 0, &rules);
        assert!(sent.iter().all(|entry| count_images(&entry.item) == 0));
        assert!(bytes < 1_000 && sent[0].id != conversation.entries()[0].id);
    }

    #[test]
    fn there_are_never_too_many_images_for_one_request() {
        let counts = counts(&conversation(MAX_IMAGES));
        assert_eq!(counts.iter().sum::<usize>(), KEPT_IMAGES);
        assert_eq!((counts[0], counts.last()), (0, Some(&1)));
        let all: usize = self::counts(&conversation(MAX_IMAGES - 1)).iter().sum();
        assert_eq!(all, MAX_IMAGES);
    }
}
