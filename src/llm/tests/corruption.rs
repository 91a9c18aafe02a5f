//! Corrupted recordings: every reader continues or returns a fault.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::fixtures;
use crate::llm::decode::DeltaBuffer;
use crate::llm::wire::Wire;
use crate::net::sse::{SseError, SseParser};
use crate::types::Fault;

/// A way to corrupt bytes.
#[derive(Clone, Debug)]
enum Corruption {
    Flip(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Repeat(usize, usize),
    Insert(usize, Vec<u8>),
}

fn any_corruption() -> impl Strategy<Value = Corruption> {
    let at = any::<usize>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Corruption::Flip(at, byte)),
        at().prop_map(Corruption::Cut),
        (at(), 1..200_usize).prop_map(|(at, length)| Corruption::Remove(at, length)),
        (at(), 1..400_usize).prop_map(|(at, length)| Corruption::Repeat(at, length)),
        (at(), prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, new)| Corruption::Insert(at, new)),
        (
            at(),
            prop::sample::select(vec!["null", "-1", "1e999", "{}", "[]", "\"", "\\ud800", "\n\n"])
        )
            .prop_map(|(at, new)| Corruption::Insert(at, new.as_bytes().to_vec())),
    ]
}

impl Corruption {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        match self {
            Self::Flip(at, byte) => bytes[at % length] = *byte,
            Self::Cut(at) => bytes.truncate(at % length),
            Self::Remove(at, many) => {
                drop(bytes.drain(at % length..(at % length + many).min(length)));
            }
            Self::Repeat(at, many) => {
                let piece = bytes[at % length..(at % length + many).min(length)].to_vec();
                bytes.splice(at % length..at % length, piece);
            }
            Self::Insert(at, new) => drop(bytes.splice(at % length..at % length, new.clone())),
        }
    }
}

/// A wire with its recorded streams.
type RecordedStreams = (Arc<dyn Wire>, Vec<Vec<u8>>);

/// Returns every wire with its recorded streams.
fn wires() -> Vec<RecordedStreams> {
    let all = fixtures::wires().into_iter();
    all.map(|(folder, wire)| (wire, load_streams(folder))).collect()
}

fn load_streams(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(folder);
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let streams =
        paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "sse"));
    streams.map(|path| fs::read(path).unwrap()).collect()
}

/// An error before the end of a stream.
struct ReadError;

impl From<SseError> for ReadError {
    fn from(_: SseError) -> Self {
        Self
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        assert!(!fault.message.is_empty());
        Self
    }
}

/// Reads a stream in chunks of a given size.
fn read(wire: &dyn Wire, stream: &[u8], size: usize) {
    let (mut decoder, mut deltas, mut parser) =
        (wire.reader(), DeltaBuffer::default(), SseParser::new());
    for piece in stream.chunks(size) {
        let read = parser.push(piece, |event| -> Result<(), ReadError> {
            decoder.push(event, &mut deltas)?;
            Ok(())
        });
        if read.is_err() {
            return;
        }
    }
    if let Err(fault) = decoder.finish() {
        assert!(!fault.message.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Faults L29, L30, L35 to L38, L42, L46: corruption anywhere in a stream, for every wire.
    #[test]
    fn a_damaged_stream_is_read_or_refused(
        which: usize,
        damages in prop::collection::vec(any_corruption(), 0..6),
        size in 1..300_usize,
    ) {
        for (wire, streams) in wires() {
            let mut stream = streams[which % streams.len()].clone();
            damages.iter().for_each(|damage| damage.apply(&mut stream));
            read(&*wire, &stream, size);
        }
    }

    /// Faults L27, L46: the same for replies that are one document, and for other text.
    #[test]
    fn a_damaged_body_is_read_or_refused(
        text in ".{0,200}",
        damages in prop::collection::vec(any_corruption(), 0..4),
    ) {
        let bodies = [
            r#"{"choices":[{"message":{"content":"a","tool_calls":[{"id":"i","function":{"name":"n","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#,
            r#"{"content":[{"type":"text","text":"a"},{"type":"tool_use","id":"i","name":"n","input":{}}],"stop_reason":"end_turn","usage":{"input_tokens":1}}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"a"},{"functionCall":{"name":"n","args":{}}}]},"finishReason":"STOP"}]}"#,
            r#"{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}],"usage":{"input_tokens":1}}"#,
            text.as_str(),
        ];
        for body in bodies {
            let mut bytes = body.as_bytes().to_vec();
            damages.iter().for_each(|damage| damage.apply(&mut bytes));
            let body = String::from_utf8_lossy(&bytes);
            for (wire, _) in wires() {
                let _ = wire.reader().read_document(&body);
            }
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    let deep = format!("data: {}\n\n", "[".repeat(200_000));
    for (wire, _) in wires() {
        read(&*wire, deep.as_bytes(), 4_096);
        assert!(wire.reader().read_document(&"{\"a\":".repeat(200_000)).is_err());
    }
}
