//! The whole of what was too long for the model, and how it is shortened.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::CallId;

/// Keeps the whole text of results that the model has seen shortened.
pub trait OutputStore: Send + Sync + Debug {
    /// Keeps the text of a call's result.
    fn store(&self, call: &CallId, text: Arc<str>);

    /// Returns up to so many lines of the text that was kept for a call, from one on that is counted from 1; none when
    /// nothing was kept. Fewer lines are fine when they are long.
    fn page(&self, call: &CallId, first: u64, lines: u64) -> Option<ResultPage>;
}

/// Some lines of a text that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultPage {
    /// The lines, with their ends.
    pub text: String,
    /// Lines of the whole text.
    pub total_lines: u64,
}

/// Keeps texts in memory; the oldest give way when there are too many.
#[derive(Debug)]
pub struct MemoryOutputStore {
    capacity: usize,
    texts: Mutex<VecDeque<(CallId, Arc<str>)>>,
}

/// Lines that a shortened text keeps of the beginning.
const HEAD_LINES: usize = 40;

/// Lines that a shortened text keeps of the end.
const TAIL_LINES: usize = 20;

/// Bytes that make up a token, roughly.
const BYTES_PER_TOKEN: usize = 4;

impl Default for MemoryOutputStore {
    fn default() -> Self {
        Self::new(8 << 20)
    }
}

impl MemoryOutputStore {
    /// Returns a store for so many bytes.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, texts: Mutex::default() }
    }
}

impl OutputStore for MemoryOutputStore {
    fn store(&self, call: &CallId, text: Arc<str>) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
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
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, text) = texts.iter().find(|(other, _)| other == call)?;
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let (skipped, lines) = (number(first.max(1) - 1), number(lines));
        let page = text.split_inclusive('\n').skip(skipped).take(lines).collect();
        Some(ResultPage { text: page, total_lines: text.split_inclusive('\n').count() as u64 })
    }
}

/// Returns how many bytes a result of so many tokens may have; none when there is no limit.
pub(super) fn bytes_for_tokens(tokens: u64) -> Option<usize> {
    (tokens > 0)
        .then(|| usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN))
}

/// Returns a text of so many bytes at the most, with a note about what was left out; none when it is short enough.
///
/// The first 40 and the last 20 lines are kept. Where they are too long themselves, so is their middle left out.
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
    let (head, tail) = if head.len() + tail.len() <= capacity {
        (head, tail)
    } else {
        (truncate_to(head, 2 * share), truncate_to(tail, share))
    };
    let end = if head.ends_with('\n') { "" } else { "\n" };
    Some(format!("{head}{end}[... {omitted} lines omitted ...]\n{tail}"))
}

fn truncate_to(text: String, capacity: usize) -> String {
    if text.len() > capacity { cut_middle(&text, capacity) } else { text }
}

/// Returns the first two thirds and the last third of what a text may have.
fn cut_middle(text: &str, capacity: usize) -> String {
    let head = char_boundary(text, capacity / 3 * 2);
    let tail = char_boundary(text, text.len() - capacity / 3);
    let omitted = tail - head;
    format!("{}\n[... {omitted} bytes omitted ...]\n{}", &text[..head], &text[tail..])
}

/// Returns the last place up to `index` where a text can be cut.
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
    fn the_oldest_texts_give_way() {
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
