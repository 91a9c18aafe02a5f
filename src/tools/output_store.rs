//! Storage of results that are too long for the model, and how they are shortened.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use crate::model::CallId;
use crate::port::lock;

/// Stores the full text of shortened results.
pub trait OutputStore: Send + Sync + Debug {
    /// Stores the full text of a call's result.
    fn store(&self, call: &CallId, text: Arc<str>);

    /// Returns at most `lines` lines of the stored text of a call, beginning with line `first`, counted from 1; `None` if
    /// nothing is stored. Implementations may return fewer lines if these are long.
    fn page(&self, call: &CallId, first: u64, lines: u64) -> Option<ResultPage>;
}

/// Some lines of a stored text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultPage {
    /// The lines with their line ends.
    pub text: String,
    /// The number of lines of the whole text.
    pub total_lines: u64,
}

/// Stores texts in memory; the oldest are dropped when the capacity is exceeded.
#[derive(Debug)]
pub struct MemoryOutputStore {
    capacity: usize,
    texts: Mutex<VecDeque<(CallId, Arc<str>)>>,
}

/// The number of lines that a shortened text keeps from the beginning.
const HEAD_LINES: usize = 40;

/// The number of lines that a shortened text keeps from the end.
const TAIL_LINES: usize = 20;

/// The approximate number of bytes per token.
const BYTES_PER_TOKEN: usize = 4;

impl Default for MemoryOutputStore {
    fn default() -> Self {
        Self::new(8 << 20)
    }
}

impl MemoryOutputStore {
    /// Returns a store with a capacity in bytes.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, texts: Mutex::default() }
    }
}

impl OutputStore for MemoryOutputStore {
    fn store(&self, call: &CallId, text: Arc<str>) {
        let mut texts = lock(&self.texts);
        texts.retain(|(other, _)| other != call);
        texts.push_back((call.clone(), text));
        let size = |texts: &VecDeque<(CallId, Arc<str>)>| -> usize {
            texts.iter().map(|(_, text)| text.len()).sum()
        };
        while texts.len() > 1 && size(&texts) > self.capacity {
            texts.pop_front();
        }
    }

    fn page(&self, call: &CallId, first: u64, lines: u64) -> Option<ResultPage> {
        let texts = lock(&self.texts);
        let (_, text) = texts.iter().find(|(other, _)| other == call)?;
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let (skipped, lines) = (number(first.max(1) - 1), number(lines));
        let page = text.split_inclusive('\n').skip(skipped).take(lines).collect();
        Some(ResultPage { text: page, total_lines: text.split_inclusive('\n').count() as u64 })
    }
}

/// Converts a limit in tokens to bytes; `None` if there is no limit.
pub(super) fn bytes_for_tokens(tokens: u64) -> Option<usize> {
    (tokens > 0)
        .then(|| usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN))
}

/// Shortens a text to a number of bytes, with a note about the omitted part; `None` if it is short enough.
///
/// The first 40 and the last 20 lines are kept. If these are too long, their middle is omitted.
pub(super) fn truncate_text(text: &str, capacity: usize) -> Option<String> {
    if text.len() <= capacity {
        return None;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    if lines.len() <= HEAD_LINES + TAIL_LINES {
        return Some(cut_middle(text, capacity));
    }
    let head = lines[..HEAD_LINES].concat();
    let tail = lines[lines.len() - TAIL_LINES..].concat();
    let omitted = lines.len() - HEAD_LINES - TAIL_LINES;
    let share = capacity / 3;
    let is_short = head.len() + tail.len() <= capacity;
    let cut = |text: String, capacity| match is_short || text.len() <= capacity {
        true => text,
        false => cut_middle(&text, capacity),
    };
    let (head, tail) = (cut(head, 2 * share), cut(tail, share));
    let end = if head.ends_with('\n') { "" } else { "\n" };
    Some(format!("{head}{end}[... {omitted} lines omitted ...]\n{tail}"))
}

/// Cuts out the middle of a text: two thirds of the limit are left for its beginning, one third for its end.
fn cut_middle(text: &str, capacity: usize) -> String {
    let head = char_boundary(text, capacity / 3 * 2);
    let tail = char_boundary(text, text.len() - capacity / 3);
    let omitted = tail - head;
    format!("{}\n[... {omitted} bytes omitted ...]\n{}", &text[..head], &text[tail..])
}

/// Returns the beginning of a text, at most this many bytes.
pub(super) fn first_bytes(text: &str, capacity: usize) -> &str {
    &text[..char_boundary(text, capacity)]
}

/// Returns the last character boundary up to `index`.
pub(super) fn char_boundary(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_forty_and_the_last_twenty_lines_are_kept() {
        let lines: Vec<String> = (1..=100).map(|n| format!("line {n}\n")).collect();
        let text = lines.concat();
        let short = truncate_text(&text, 600).unwrap();
        let lines: Vec<&str> = short.lines().collect();
        assert_eq!(lines.len(), 61);
        assert_eq!((lines[0], lines[39]), ("line 1", "line 40"));
        assert_eq!(lines[40], "[... 40 lines omitted ...]");
        assert_eq!((lines[41], lines[60]), ("line 81", "line 100"));
        assert_eq!(truncate_text(&text, 1_000), None);
    }

    #[test]
    fn a_few_long_lines_lose_their_middle() {
        let short = truncate_text(&"é".repeat(1_000), 300).unwrap();
        assert!(short.contains("[... 1700 bytes omitted ...]"), "{short}");
    }

    #[test]
    fn the_oldest_texts_are_dropped() {
        let store = MemoryOutputStore::new(10);
        store.store(&"a".into(), "12345678".into());
        store.store(&"b".into(), "1234".into());
        assert_eq!(store.page(&"a".into(), 1, 9), None);
        let kept = ResultPage { text: "1234".to_owned(), total_lines: 1 };
        assert_eq!(store.page(&"b".into(), 1, 9), Some(kept));
    }

    proptest! {
        #[test]
        fn a_shortened_text_is_short(line in ".{0,80}", count in 1usize..200, capacity in 200usize..2_000) {
            let text = format!("{line}\n").repeat(count);
            if let Some(short) = truncate_text(&text, capacity) {
                prop_assert!(short.len() <= capacity + 150, "{} of {capacity}", short.len());
            }
        }
    }
}
