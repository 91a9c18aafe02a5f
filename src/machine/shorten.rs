//! Shortening tool results, so that a request fits into the context window.
//!
//! Only the request is shortened: the conversation keeps what the tools returned.

use std::sync::Arc;

use super::conversation::{Entry, EntryId};
use crate::model::{Digest, Exchange, Item, ToolResult};

/// The most bytes that stand for what is left out of a result.
const MARKER: usize = 48;

/// Returns the entries with their longest tool results shortened, so that they lose this many bytes, if their results
/// have as many.
pub(super) fn results(entries: &[Entry], surplus: u64) -> Vec<Entry> {
    let lengths: Vec<usize> =
        entries.iter().flat_map(answers).map(|result| result.text.len()).collect();
    let sum = |longest: usize| lengths.iter().map(|length| *length.min(&longest)).sum::<usize>();
    let fit = sum(usize::MAX).saturating_sub(usize::try_from(surplus).unwrap_or(usize::MAX));
    let (mut longest, mut above) = (MARKER, lengths.iter().copied().max().unwrap_or_default());
    while longest < above {
        let middle = above - (above - longest) / 2;
        if sum(middle) <= fit {
            longest = middle;
        } else {
            above = middle - 1;
        }
    }
    entries.iter().map(|entry| shortened(entry, longest)).collect()
}

fn answers(entry: &Entry) -> &[ToolResult] {
    match &entry.item {
        Item::Exchange(exchange) => exchange.results(),
        Item::User(_) | Item::Assistant(_) => &[],
    }
}

/// Returns an entry whose results have at most this many bytes. One that says something else has another id, which no
/// entry of a conversation has, so that what was encoded of the original is not taken for it.
fn shortened(entry: &Entry, longest: usize) -> Entry {
    let Item::Exchange(exchange) = &entry.item else { return entry.clone() };
    if exchange.results().iter().all(|result| result.text.len() <= longest) {
        return entry.clone();
    }
    let mut digest = Digest::EMPTY;
    let results = exchange.results().iter().map(|result| {
        let text = cut(&result.text, longest);
        digest = digest.and(text.as_bytes());
        ToolResult { text, ..result.clone() }
    });
    let results: Arc<[ToolResult]> = results.collect();
    match Exchange::new(exchange.reply().clone(), results) {
        Ok(exchange) => Entry { id: EntryId(digest.0 | 1 << 63), item: Item::Exchange(exchange) },
        // Cannot happen: each result answers the call that it answered before.
        Err(_) => entry.clone(),
    }
}

/// Returns the beginning and the end of a text, of this many bytes at the most.
fn cut(text: &Arc<str>, longest: usize) -> Arc<str> {
    if text.len() <= longest {
        return Arc::clone(text);
    }
    let kept = longest.saturating_sub(MARKER);
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let head = (0..=kept / 3 * 2).rev().find(is_boundary).unwrap_or(0);
    let tail = (text.len() - kept / 3..=text.len()).find(is_boundary).unwrap_or(text.len());
    let (head_text, tail_text) = (&text[..head], &text[tail..]);
    format!("{head_text}\n[... {} bytes omitted ...]\n{tail_text}", tail - head).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Finish, Part, Reply, ToolCall, ToolStatus, Usage};

    fn entry(id: u64, texts: &[&str]) -> Entry {
        let ids = (0..texts.len()).map(|index| index.to_string());
        let calls = ids.clone().map(|id| Part::Call(ToolCall::new(id.as_str().into(), "t", "{}")));
        let (finish, usage) = (Finish::ToolCalls, Usage::default());
        let reply = Reply { parts: calls.collect(), finish, usage, model: None };
        let results = ids
            .zip(texts)
            .map(|(id, text)| ToolResult::new(id.as_str().into(), ToolStatus::Ok, *text));
        let results: Vec<_> = results.collect();
        Entry { id: EntryId(id), item: Item::Exchange(Exchange::new(reply, results).unwrap()) }
    }

    fn texts(entries: &[Entry]) -> Vec<&str> {
        entries.iter().flat_map(answers).map(|result| &*result.text).collect()
    }

    #[test]
    fn the_longest_results_lose_what_has_to_go() {
        let long = format!("{}ö{}", "a".repeat(500), "z".repeat(500));
        let entries = [entry(1, &["short", &long]), entry(2, &[&"b".repeat(300)])];
        for surplus in [1, 100, 600, 1_100] {
            let fitted = results(&entries, surplus);
            let bytes = |entries: &[Entry]| texts(entries).iter().map(|t| t.len()).sum::<usize>();
            let lost = bytes(&entries) - bytes(&fitted);
            assert!(lost as u64 >= surplus, "{lost} of {surplus}");
            assert_eq!(texts(&fitted)[0], "short");
            assert!(texts(&fitted)[1].starts_with('a') || surplus > 1_000);
            assert!(texts(&fitted)[1].contains(" bytes omitted ...]\n"));
            // What is as it was keeps its name, and only that.
            for (before, after) in entries.iter().zip(&fitted) {
                assert_eq!(before.id == after.id, before == after);
            }
        }
        assert_eq!(results(&entries, 0), entries);
    }

    #[test]
    fn a_result_is_not_shortened_to_less_than_its_marker() {
        let entries = [entry(1, &[&"ä".repeat(900)])];
        let fitted = results(&entries, u64::MAX);
        assert_eq!(texts(&fitted), ["\n[... 1800 bytes omitted ...]\n"]);
        let usual = entry(2, &["as it is"]);
        assert_eq!(results(std::slice::from_ref(&usual), u64::MAX), [usual]);
    }
}
