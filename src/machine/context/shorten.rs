//! Shortening of tool results, so that a request fits into the context window.
//!
//! This only affects the request: the conversation keeps the whole results.

use std::sync::Arc;

use crate::machine::context::conversation::{ConversationEntry, EntryId};
use crate::types::{ConversationItem, Digest, ToolExchange, ToolResult};

/// The maximum length of the marker for omitted bytes.
const MAX_MARKER_BYTES: usize = 48;

/// Returns the entries with their longest tool results shortened by this many bytes in total, as far as possible.
pub(crate) fn shorten_results(
    entries: &[ConversationEntry],
    surplus: u64,
) -> Vec<ConversationEntry> {
    let lengths: Vec<usize> =
        entries.iter().flat_map(tool_results).map(|result| result.text.len()).collect();
    let sum = |longest: usize| lengths.iter().map(|length| *length.min(&longest)).sum::<usize>();
    let target_size =
        sum(usize::MAX).saturating_sub(usize::try_from(surplus).unwrap_or(usize::MAX));
    let (mut longest, mut above) =
        (MAX_MARKER_BYTES, lengths.iter().copied().max().unwrap_or_default());
    while longest < above {
        let middle = above - (above - longest) / 2;
        if sum(middle) <= target_size {
            longest = middle;
        } else {
            above = middle - 1;
        }
    }
    entries.iter().map(|entry| shorten_entry(entry, longest)).collect()
}

fn tool_results(entry: &ConversationEntry) -> &[ToolResult] {
    match &entry.item {
        ConversationItem::Exchange(exchange) => exchange.results(),
        ConversationItem::User(_) | ConversationItem::Assistant(_) => &[],
    }
}

/// Returns an entry whose results are shortened to at most this many bytes, for one request.
fn shorten_entry(entry: &ConversationEntry, longest: usize) -> ConversationEntry {
    let ConversationItem::Exchange(exchange) = &entry.item else { return entry.clone() };
    if exchange.results().iter().all(|result| result.text.len() <= longest) {
        return entry.clone();
    }
    let mut digest = Digest::EMPTY;
    let results = exchange.results().iter().map(|result| {
        let text = cut_middle(&result.text, longest);
        digest = digest.with_bytes(text.as_bytes());
        ToolResult { text, ..result.clone() }
    });
    let results: Arc<[ToolResult]> = results.collect();
    match ToolExchange::new(exchange.reply().clone(), results) {
        Ok(exchange) => ConversationEntry {
            id: EntryId::of_changed(digest),
            item: ConversationItem::Exchange(exchange),
        },
        // Can't happen: each result belongs to the same call as before.
        Err(_) => entry.clone(),
    }
}

/// Returns the beginning and the end of a text, at most this many bytes in total.
fn cut_middle(text: &Arc<str>, longest: usize) -> Arc<str> {
    if text.len() <= longest {
        return Arc::clone(text);
    }
    let kept = longest.saturating_sub(MAX_MARKER_BYTES);
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let head = (0..=kept / 3 * 2).rev().find(is_boundary).unwrap_or(0);
    let tail = (text.len() - kept / 3..=text.len()).find(is_boundary).unwrap_or(text.len());
    let (head_text, tail_text) = (&text[..head], &text[tail..]);
    format!("{head_text}\n[... {} bytes omitted ...]\n{tail_text}", tail - head).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Reply, ReplyFinish, ReplyPart, ToolCall, ToolStatus, Usage};

    fn entry(id: u64, texts: &[&str]) -> ConversationEntry {
        let ids = (0..texts.len()).map(|index| index.to_string());
        let calls =
            ids.clone().map(|id| ReplyPart::Call(ToolCall::new(id.as_str().into(), "t", "{}")));
        let (finish, usage) = (ReplyFinish::ToolCalls, Usage::default());
        let reply = Reply { parts: calls.collect(), finish, usage, model: None };
        let results = ids
            .zip(texts)
            .map(|(id, text)| ToolResult::new(id.as_str().into(), ToolStatus::Ok, *text));
        let results: Vec<_> = results.collect();
        ConversationEntry {
            id: EntryId(id),
            item: ConversationItem::Exchange(ToolExchange::new(reply, results).unwrap()),
        }
    }

    fn texts(entries: &[ConversationEntry]) -> Vec<&str> {
        entries.iter().flat_map(tool_results).map(|result| &*result.text).collect()
    }

    #[test]
    fn the_longest_results_are_shortened() {
        let long = format!("{}ö{}", "a".repeat(500), "z".repeat(500));
        let entries = [entry(1, &["short", &long]), entry(2, &[&"b".repeat(300)])];
        for surplus in [1, 100, 600, 1_100] {
            let fitted = shorten_results(&entries, surplus);
            let bytes = |entries: &[ConversationEntry]| {
                texts(entries).iter().map(|t| t.len()).sum::<usize>()
            };
            let lost = bytes(&entries) - bytes(&fitted);
            assert!(lost as u64 >= surplus, "{lost} of {surplus}");
            assert_eq!(texts(&fitted)[0], "short");
            let has_ends = texts(&fitted)[1].starts_with(&"a".repeat(50))
                && texts(&fitted)[1].ends_with(&"z".repeat(50));
            assert!(has_ends || surplus > 1_000);
            assert!(texts(&fitted)[1].contains(" bytes omitted ...]\n"));
            // Only unchanged entries keep their ids.
            for (before, after) in entries.iter().zip(&fitted) {
                assert_eq!(before.id == after.id, before == after);
            }
        }
        assert_eq!(shorten_results(&entries, 0), entries);
    }

    #[test]
    fn a_result_is_not_shortened_below_its_marker() {
        let entries = [entry(1, &[&"ä".repeat(900)])];
        let fitted = shorten_results(&entries, u64::MAX);
        assert_eq!(texts(&fitted), ["\n[... 1800 bytes omitted ...]\n"]);
        let usual = entry(2, &["as it is"]);
        assert_eq!(shorten_results(std::slice::from_ref(&usual), u64::MAX), [usual]);
    }
}
