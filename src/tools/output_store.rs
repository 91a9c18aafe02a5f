//! Storage of results that are too long for the model, and the shortening of results.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write};
use std::sync::{Arc, Mutex};

use crate::exec::Omission;
use crate::port::lock;
use crate::types::{CallId, Sha256Digest};
use crate::workspace::{LinePage, LinePosition, read_line_page};

/// A function that writes a text.
pub type TextWriter<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// Stores the full text of shortened results.
pub trait OutputStore: Send + Sync + Debug {
    /// Stores the full text of a call's result. Returns its SHA-256 if the text outlives the process.
    ///
    /// # Errors
    ///
    /// Fails if the text can't be stored.
    fn store(&self, call: &CallId, text: Arc<str>) -> io::Result<Option<Sha256Digest>>;

    /// Stores a text like [`store`](Self::store), but while a function writes it, in bounded memory.
    ///
    /// # Errors
    ///
    /// Fails if the text can't be stored, or the function fails.
    fn store_written(
        &self,
        call: &CallId,
        write: TextWriter<'_>,
    ) -> io::Result<Option<Sha256Digest>>;

    /// Returns a new file for output whose text is not stored yet. The file is removed when it is closed.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be created.
    fn open_spool(&self) -> io::Result<File> {
        tempfile::tempfile()
    }

    /// Returns at most `lines` lines of the stored text of a call, beginning at a position; `None` if nothing is
    /// stored. Implementations may return fewer lines if these are long.
    fn page(&self, call: &CallId, first: LinePosition, lines: u64) -> Option<LinePage>;
}

/// Stores texts in memory, and texts that are written piece by piece in temporary files. The oldest texts are dropped
/// when the capacity is exceeded.
#[derive(Debug)]
pub struct MemoryOutputStore {
    capacity: usize,
    texts: Mutex<VecDeque<(CallId, StoredText)>>,
}

#[derive(Debug)]
enum StoredText {
    Text(Arc<str>),
    File(File),
}

/// The maximum number of texts in files.
const MAX_FILES: usize = 8;

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

    fn add(&self, call: &CallId, text: StoredText) {
        let mut texts = lock(&self.texts);
        texts.retain(|(other, _)| other != call);
        texts.push_back((call.clone(), text));
        let is_too_much = |texts: &VecDeque<(CallId, StoredText)>| {
            let (mut bytes, mut files) = (0, 0);
            for (_, text) in texts {
                match text {
                    StoredText::Text(text) => bytes += text.len(),
                    StoredText::File(_) => files += 1,
                }
            }
            bytes > self.capacity || files > MAX_FILES
        };
        while texts.len() > 1 && is_too_much(&texts) {
            texts.pop_front();
        }
    }
}

impl OutputStore for MemoryOutputStore {
    fn store(&self, call: &CallId, text: Arc<str>) -> io::Result<Option<Sha256Digest>> {
        self.add(call, StoredText::Text(text));
        Ok(None)
    }

    fn store_written(
        &self,
        call: &CallId,
        write: TextWriter<'_>,
    ) -> io::Result<Option<Sha256Digest>> {
        let mut out = BufWriter::new(tempfile::tempfile()?);
        write(&mut out)?;
        self.add(call, StoredText::File(out.into_inner()?));
        Ok(None)
    }

    fn page(&self, call: &CallId, first: LinePosition, lines: u64) -> Option<LinePage> {
        let texts = lock(&self.texts);
        let (_, text) = texts.iter().find(|(other, _)| other == call)?;
        let mut input: Box<dyn Read> = match text {
            StoredText::Text(text) => Box::new(text.as_bytes()),
            StoredText::File(file) => Box::new((file as &File).rewind().map(|()| file).ok()?),
        };
        read_line_page(&mut BufReader::new(&mut input), first, lines).ok()
    }
}

/// Converts a limit in tokens to bytes; `None` if there is no limit.
pub(super) fn bytes_for_tokens(tokens: u64) -> Option<usize> {
    (tokens > 0)
        .then(|| usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN))
}

/// Shortens a text to a number of bytes, with a note about the omitted part; `None` if it is short enough.
///
/// The first 40 and the last 20 lines are kept. If these are too long, their middle is omitted. Omissions within the
/// text itself are included in the note.
pub(super) fn truncate_text(text: &str, capacity: usize, omissions: &[Omission]) -> Option<String> {
    if text.len() <= capacity {
        return None;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    if lines.len() <= HEAD_LINES + TAIL_LINES {
        return Some(cut_middle(text, capacity, omissions));
    }
    let head = lines[..HEAD_LINES].concat();
    let tail = lines[lines.len() - TAIL_LINES..].concat();
    let omitted: u64 = lines[HEAD_LINES..lines.len() - TAIL_LINES]
        .iter()
        .map(|line| {
            omissions.iter().find(|known| known.note == **line).map_or(1, |known| known.lines)
        })
        .sum();
    let share = capacity / 3;
    let is_short = head.len() + tail.len() <= capacity;
    let cut = |text: String, capacity| match is_short || text.len() <= capacity {
        true => text,
        false => cut_middle(&text, capacity, omissions),
    };
    let (head, tail) = (cut(head, 2 * share), cut(tail, share));
    let end = if head.ends_with('\n') { "" } else { "\n" };
    Some(format!("{head}{end}[... {omitted} lines omitted ...]\n{tail}"))
}

/// Cuts out the middle of a text: two thirds of the limit remain for its beginning, one third for its end.
fn cut_middle(text: &str, capacity: usize, omissions: &[Omission]) -> String {
    let head = char_boundary(text, capacity / 3 * 2);
    let tail = char_boundary(text, text.len() - capacity / 3);
    let hidden = omissions.iter().filter(|known| text[head..tail].contains(&known.note));
    let hidden: u64 =
        hidden.map(|known| known.bytes - (known.note.len() as u64).min(known.bytes)).sum();
    let omitted = (tail - head) as u64 + hidden;
    format!("{}\n[... {omitted} bytes omitted ...]\n{}", &text[..head], &text[tail..])
}

/// Returns the beginning of a text, at most the given number of bytes.
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
        let short = truncate_text(&text, 600, &[]).unwrap();
        let lines: Vec<&str> = short.lines().collect();
        assert_eq!(lines.len(), 61);
        assert_eq!((lines[0], lines[39]), ("line 1", "line 40"));
        assert_eq!(lines[40], "[... 40 lines omitted ...]");
        assert_eq!((lines[41], lines[60]), ("line 81", "line 100"));
        assert_eq!(truncate_text(&text, 1_000, &[]), None);
    }

    #[test]
    fn a_few_long_lines_lose_their_middle() {
        let short = truncate_text(&"é".repeat(1_000), 300, &[]).unwrap();
        assert!(short.contains("[... 1700 bytes omitted ...]"), "{short}");
    }

    #[test]
    fn the_oldest_texts_are_dropped() {
        let store = MemoryOutputStore::new(10);
        store.store(&"a".into(), "12345678".into()).unwrap();
        store.store(&"b".into(), "1234".into()).unwrap();
        assert_eq!(store.page(&"a".into(), LinePosition::line(1), 9), None);
        let kept = LinePage { text: "1234".to_owned(), byte: 0, lines: 1, cut: 0 };
        assert_eq!(store.page(&"b".into(), LinePosition::line(1), 9), Some(kept));
    }

    proptest! {
        #[test]
        fn a_shortened_text_is_short(line in ".{0,80}", count in 1usize..200, capacity in 200usize..2_000) {
            let text = format!("{line}\n").repeat(count);
            if let Some(short) = truncate_text(&text, capacity, &[]) {
                prop_assert!(short.len() <= capacity + 150, "{} of {capacity}", short.len());
            }
        }
    }
}
