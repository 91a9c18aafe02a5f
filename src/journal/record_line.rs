//! One record as one line: writing, sealing with a checksum, verifying and parsing.

use std::collections::BTreeMap;

use memchr::{memchr, memmem};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::blobs::{BlobRef, BlobStore};
use super::error::JournalError;
use super::header::{EndedRecord, ResumedRecord, SessionHeader, WallTime};
use super::journal_reader::RecordDamage;
use super::steering_queue::MessageId;
use crate::machine::{Event, EventKind, Fingerprint, StateKind};
use crate::model::{Digest, EffectId, RunTime, TimeSpan};
use crate::port::CallTiming;

/// A stored record.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    /// Its sequence number, from zero.
    pub seq: u64,
    /// The session time.
    pub at: RunTime,
    /// The wall-clock time, in records that show it to people.
    pub ts: Option<WallTime>,
    /// The fingerprint of the machine before it.
    pub fingerprint: Option<StoredFingerprint>,
    /// The timing of the model call that it completes.
    pub timing: Option<CallTiming>,
    /// The time that syncs took since the record before.
    pub sync_time: TimeSpan,
    /// The messages from other processes that it contains.
    pub message_ids: Vec<MessageId>,
    /// Its content.
    pub content: StoredContent,
    /// The texts that are stored separately, with their JSON pointers.
    pub(super) blobs: BTreeMap<String, BlobRef>,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredContent {
    /// The header; the first record, and no other.
    Header(Box<SessionHeader>),
    /// An event that the machine accepted.
    Event(Event),
    /// The partial text of a cancelled model call.
    Partial(PartialReply),
    /// The session was resumed.
    Resumed(Box<ResumedRecord>),
    /// The run ended.
    Ended(EndedRecord),
    /// A record of a newer release that may be ignored.
    Other,
}

/// The partial text of a cancelled model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialReply {
    /// The model call.
    pub id: EffectId,
    /// The text.
    pub text: String,
}

/// A [`Fingerprint`] as it was stored. A newer release may have states that this one does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFingerprint {
    /// The name of the state.
    pub state: String,
    /// The digest of the machine.
    pub digest: Option<Digest>,
}

/// A record to be written.
pub(super) struct RecordLine<'a> {
    pub(super) seq: u64,
    pub(super) at: RunTime,
    pub(super) ts: Option<WallTime>,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) timing: Option<CallTiming>,
    pub(super) sync_time: TimeSpan,
    pub(super) message_ids: &'a [MessageId],
    pub(super) body: RecordBody<'a>,
}

/// The content of a record to be written.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordBody<'a> {
    Header(&'a SessionHeader),
    Event(&'a Event),
    Partial { id: EffectId, text: &'a str },
    Resumed(&'a ResumedRecord),
    Ended(&'a EndedRecord),
}

/// The fields of a line, in the order in which they are written.
#[derive(Serialize)]
struct WrittenFields<'a> {
    seq: u64,
    at: RunTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<WallTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "mark")]
    fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "call")]
    timing: Option<CallTiming>,
    #[serde(skip_serializing_if = "is_zero")]
    #[serde(rename = "sync")]
    sync_time: TimeSpan,
    #[serde(skip_serializing_if = "<[MessageId]>::is_empty")]
    #[serde(rename = "mail")]
    message_ids: &'a [MessageId],
    #[serde(flatten)]
    body: &'a RecordBody<'a>,
}

/// The same fields, for reading.
#[derive(Deserialize)]
struct ParsedFields<'a> {
    seq: u64,
    #[serde(default)]
    at: RunTime,
    #[serde(default)]
    ts: Option<WallTime>,
    #[serde(default, borrow)]
    state: Option<&'a str>,
    #[serde(default, borrow)]
    #[serde(rename = "mark")]
    fingerprint: Option<&'a str>,
    #[serde(default)]
    #[serde(rename = "call")]
    timing: Option<CallTiming>,
    #[serde(default)]
    #[serde(rename = "sync")]
    sync_time: TimeSpan,
    #[serde(default)]
    #[serde(rename = "mail")]
    message_ids: Vec<MessageId>,
    #[serde(default)]
    blobs: BTreeMap<String, BlobRef>,
    #[serde(default)]
    header: Option<Box<SessionHeader>>,
    #[serde(default)]
    event: Option<Event>,
    #[serde(default)]
    partial: Option<PartialReply>,
    #[serde(default)]
    resumed: Option<Box<ResumedRecord>>,
    #[serde(default)]
    ended: Option<EndedRecord>,
}

/// The text before the checksum at the end of a line, and after it.
const CRC_PREFIX: &[u8] = b",\"crc\":\"";
const CRC_SUFFIX: &[u8] = b"\"}";

/// The length of the sealed end of a line.
const SEAL_LENGTH: usize = CRC_PREFIX.len() + 8 + CRC_SUFFIX.len();

/// The prefix of an event record, up to the event's name.
const EVENT: &[u8] = b"\"event\":{\"";

/// The keys of the content of other records.
const OTHER_BODIES: [&[u8]; 4] = [b"\"header\":", b"\"partial\":", b"\"resumed\":", b"\"ended\":"];

/// The key for the texts that are stored separately.
const BLOBS: &[u8] = b"\"blobs\":";

/// Lines longer than this are searched for texts to store separately.
const LONG_LINE: usize = 64 << 10;

/// Texts longer than this are stored in a file of their own.
const LONG_TEXT: usize = 32 << 10;

// Serde requires a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(span: &TimeSpan) -> bool {
    *span == TimeSpan::ZERO
}

impl RecordLine<'_> {
    /// Writes the record to `out`, without checksum and line end.
    ///
    /// Long texts are stored in `blobs` before this returns.
    pub(super) fn write(&self, blobs: &BlobStore, out: &mut Vec<u8>) -> Result<(), JournalError> {
        let fields = WrittenFields {
            seq: self.seq,
            at: self.at,
            ts: self.ts,
            state: self.fingerprint.map(|mark| mark.state.as_str()),
            fingerprint: self.fingerprint.map(|mark| mark.digest.to_string()),
            timing: self.timing,
            sync_time: self.sync_time,
            message_ids: self.message_ids,
            body: &self.body,
        };
        let unwritable = |error| blobs.io_error("write a record to", error);
        serde_json::to_writer(&mut *out, &fields).map_err(unwritable)?;
        if out.len() > LONG_LINE {
            let mut value: Value = serde_json::from_slice(out).map_err(unwritable)?;
            let mut moved = BTreeMap::new();
            extract_long_texts(&mut value, &mut String::new(), blobs, &mut moved)?;
            if !moved.is_empty() {
                value["blobs"] = serde_json::to_value(moved).map_err(unwritable)?;
                out.clear();
                serde_json::to_writer(out, &value).map_err(unwritable)?;
            }
        }
        Ok(())
    }
}

/// Moves the long texts of a value into files of their own, and leaves empty ones in their places.
fn extract_long_texts(
    value: &mut Value,
    pointer: &mut String,
    blobs: &BlobStore,
    moved: &mut BTreeMap<String, BlobRef>,
) -> Result<(), JournalError> {
    let length = pointer.len();
    match value {
        Value::String(text) if text.len() > LONG_TEXT => {
            moved.insert(pointer.clone(), blobs.put(text)?);
            text.clear();
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                pointer.push('/');
                pointer.push_str(&index.to_string());
                extract_long_texts(item, pointer, blobs, moved)?;
                pointer.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                extract_long_texts(item, pointer, blobs, moved)?;
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

/// Appends the checksum to a JSON object that has at least one field, and ends the line.
///
/// Each checksum continues the one of the line before, so that a missing, repeated or moved line is detected as well.
pub(super) fn seal(line: &mut Vec<u8>, before: u32) -> u32 {
    line.pop();
    let crc = checksum(line, before);
    line.extend_from_slice(CRC_PREFIX);
    line.extend_from_slice(format!("{crc:08x}").as_bytes());
    line.extend_from_slice(CRC_SUFFIX);
    line.push(b'\n');
    crc
}

/// Splits a line without its end into its body and its checksum, without verifying that.
pub(super) fn unseal(line: &[u8]) -> Result<(&[u8], u32), RecordDamage> {
    let (body, seal) = line
        .split_at_checked(line.len().wrapping_sub(SEAL_LENGTH))
        .ok_or(RecordDamage::NoChecksum)?;
    let digits = seal.strip_prefix(CRC_PREFIX).and_then(|seal| seal.strip_suffix(CRC_SUFFIX));
    let digits =
        digits.filter(|digits| digits.iter().all(|digit| b"0123456789abcdef".contains(digit)));
    let crc = digits.and_then(|digits| u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
    Ok((body, crc.ok_or(RecordDamage::NoChecksum)?))
}

/// Returns the checksum of a line if it continues the one before.
pub(super) fn verify_seal(line: &[u8], before: u32) -> Result<u32, RecordDamage> {
    let (body, crc) = unseal(line)?;
    if checksum(body, before) == crc { Ok(crc) } else { Err(RecordDamage::WrongChecksum) }
}

/// Returns whether there was a sync between a record and the one before.
pub(super) fn is_after_sync(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Synced {
        #[serde(default)]
        sync: TimeSpan,
    }
    serde_json::from_slice(line).is_ok_and(|Synced { sync }| sync > TimeSpan::ZERO)
}

/// Returns the kind of the event in an intact line, without parsing the event.
///
/// `None` if the line has to be parsed: it is not an event or has an unknown kind, it is not the record `seq`, its
/// fields are in another order than they are written, or some of its texts are stored separately.
pub(super) fn event_kind(line: &[u8], seq: u64) -> Option<EventKind> {
    let fields = line.strip_prefix(format!("{{\"seq\":{seq},").as_bytes())?;
    let (before, event) = fields.split_at(memmem::find(fields, EVENT)?);
    let has = |text: &[u8], key: &[u8]| memmem::find(text, key).is_some();
    // Quotation marks in a text are escaped, so what looks like a key is one.
    if OTHER_BODIES.iter().any(|key| has(before, key)) || has(event, BLOBS) {
        return None;
    }
    let name = &event[EVENT.len()..];
    let name = &name[..memchr(b'"', name)?];
    EventKind::ALL.into_iter().find(|kind| kind.as_str().as_bytes().eq_ignore_ascii_case(name))
}

pub(super) fn checksum(body: &[u8], before: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(body);
    hasher.finalize()
}

/// Parses a verified line; long texts are read from `blobs`.
///
/// The outer error is damage, the inner one is content that this release does not know.
pub(super) fn read_record(
    line: &[u8],
    blobs: &BlobStore,
) -> Result<Result<StoredRecord, String>, RecordDamage> {
    let read: ParsedFields<'_> = match serde_json::from_slice(line) {
        Ok(read) => read,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if read.blobs.is_empty() {
        return Ok(Ok(read.into_record()));
    }
    let moved = read.blobs;
    let whole = match restore_long_texts(line, &moved, blobs)? {
        Ok(whole) => whole,
        Err(reason) => return Ok(Err(reason)),
    };
    let read: Result<ParsedFields<'_>, _> = serde_json::from_slice(&whole);
    Ok(match read {
        Ok(read) => Ok(StoredRecord { blobs: moved, ..read.into_record() }),
        Err(error) => Err(error.to_string()),
    })
}

/// Returns a record, with or without its checksum, with all its texts in their places and without what concerns this
/// store alone.
pub(super) fn restore_long_texts(
    line: &[u8],
    moved: &BTreeMap<String, BlobRef>,
    blobs: &BlobStore,
) -> Result<Result<Vec<u8>, String>, RecordDamage> {
    let mut value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return Ok(Err(error.to_string())),
    };
    for (pointer, blob) in moved {
        let text =
            blobs.get(blob).map_err(|reason| RecordDamage::MissingBlob(reason.to_string()))?;
        match value.pointer_mut(pointer) {
            Some(location) => *location = Value::String(text),
            None => return Ok(Err(format!("there is no place {pointer} for a text"))),
        }
    }
    if let Value::Object(fields) = &mut value {
        fields.shift_remove("blobs");
        if let Some(Value::Object(header)) = fields.get_mut("header") {
            header.shift_remove("imported");
        }
    }
    Ok(serde_json::to_vec(&value).map_err(|error| error.to_string()))
}

impl ParsedFields<'_> {
    fn into_record(self) -> StoredRecord {
        let content = self
            .event
            .map(StoredContent::Event)
            .or(self.partial.map(StoredContent::Partial))
            .or(self.header.map(StoredContent::Header))
            .or(self.resumed.map(StoredContent::Resumed))
            .or(self.ended.map(StoredContent::Ended));
        let digest =
            self.fingerprint.and_then(|mark| u64::from_str_radix(mark, 16).ok()).map(Digest);
        StoredRecord {
            seq: self.seq,
            at: self.at,
            ts: self.ts,
            fingerprint: self
                .state
                .map(|state| StoredFingerprint { state: state.to_owned(), digest }),
            timing: self.timing,
            sync_time: self.sync_time,
            message_ids: self.message_ids,
            content: content.unwrap_or(StoredContent::Other),
            blobs: BTreeMap::new(),
        }
    }
}

impl StoredFingerprint {
    /// Returns whether a replay computed the same fingerprint.
    pub fn matches(&self, found: Fingerprint) -> bool {
        self.state_kind() == Some(found.state) && self.digest == Some(found.digest)
    }

    /// Returns the state, if this release knows it.
    pub fn state_kind(&self) -> Option<StateKind> {
        StateKind::ALL.into_iter().find(|kind| kind.as_str() == self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ToolResult, ToolStatus};

    fn blobs() -> (tempfile::TempDir, BlobStore) {
        let temp = tempfile::tempdir().unwrap();
        let blobs = BlobStore::new(temp.path().join("blobs"), super::super::Durability::Os);
        (temp, blobs)
    }

    fn settled(text: &str) -> Event {
        let result = ToolResult::new("c".into(), ToolStatus::Ok, text);
        Event::ToolCompleted { id: EffectId(7), result }
    }

    fn written(event: &Event, blobs: &BlobStore) -> Vec<u8> {
        let line = RecordLine {
            seq: 3,
            at: RunTime(44),
            ts: None,
            fingerprint: Some(Fingerprint {
                state: StateKind::CallingSending,
                digest: Digest(0xab),
            }),
            timing: Some(CallTiming { encode: TimeSpan(5), first_byte: Some(TimeSpan(9)) }),
            sync_time: TimeSpan(1_000),
            message_ids: &[],
            body: RecordBody::Event(event),
        };
        let mut out = Vec::new();
        line.write(blobs, &mut out).unwrap();
        seal(&mut out, 17);
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    #[test]
    fn a_line_reads_well() {
        let (_temp, blobs) = blobs();
        let event = Event::Tick { now: RunTime(5) };
        assert_eq!(
            str::from_utf8(&written(&event, &blobs)).unwrap(),
            concat!(
                r#"{"seq":3,"at":44,"state":"Calling.Sending","mark":"00000000000000ab","#,
                r#""call":{"encode":5,"first_byte":9},"sync":1000,"event":{"tick":{"now":5}},"crc":"9c09f41b"}"#
            )
        );
    }

    #[test]
    fn what_was_written_is_read_back() {
        let (_temp, blobs) = blobs();
        for text in ["it", "a \"line\"\nand another\u{2028}", &"x".repeat(100_000)] {
            let line = written(&settled(text), &blobs);
            assert!(line.len() < 1_000);
            assert!(verify_seal(&line, 17).is_ok());
            let stored = read_record(&line, &blobs).unwrap().unwrap();
            assert_eq!(stored.content, StoredContent::Event(settled(text)));
            assert_eq!(
                (stored.seq, stored.at, stored.sync_time),
                (3, RunTime(44), TimeSpan(1_000))
            );
            assert_eq!(stored.fingerprint.unwrap().state_kind(), Some(StateKind::CallingSending));
            assert_eq!(stored.timing.unwrap().first_byte, Some(TimeSpan(9)));
        }
    }

    #[test]
    fn the_kind_of_an_event_is_known_without_parsing_it() {
        let (_temp, blobs) = blobs();
        let looks_like_keys = r#"{"ended":{},"blobs":{},"event":{"tick":{}}}"#;
        let line = written(&settled(looks_like_keys), &blobs);
        assert_eq!(event_kind(&line, 3), Some(EventKind::ToolCompleted));
        let failed = Event::StoreFailed { error: "disk".into() };
        assert_eq!(event_kind(&written(&failed, &blobs), 3), Some(EventKind::StoreFailed));
        assert_eq!(event_kind(&line, 2), None);
        assert_eq!(event_kind(&written(&settled(&"x".repeat(100_000)), &blobs), 3), None);
        for other in [
            r#"{"seq":3,"at":1,"event":{"newer":{}}}"#,
            r#"{"at":1,"seq":3,"event":{"tick":{"now":5}}}"#,
            r#"{"seq":3,"at":1,"resumed":{"setting":{"options":{"event":{"tick":{}}}}}}"#,
            r#"{"seq":3,"at":1,"ended":{}}"#,
        ] {
            assert_eq!(event_kind(other.as_bytes(), 3), None, "{other}");
        }
    }

    #[test]
    fn any_flipped_bit_breaks_the_seal() {
        let (_temp, blobs) = blobs();
        let line = written(&settled("it"), &blobs);
        assert_eq!(verify_seal(&line, 16), Err(RecordDamage::WrongChecksum));
        for bit in 0..line.len() * 8 {
            let mut line = line.clone();
            line[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_seal(&line, 17).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_long_text_that_is_lost_is_named_and_not_replaced_by_nothing() {
        let (temp, blobs) = blobs();
        let line = written(&settled(&"x".repeat(100_000)), &blobs);
        std::fs::remove_dir_all(temp.path().join("blobs")).unwrap();
        assert!(matches!(read_record(&line, &blobs), Err(RecordDamage::MissingBlob(_))));
    }

    #[test]
    fn what_a_newer_release_adds_is_overlooked_or_not_understood() {
        let (_temp, blobs) = blobs();
        let new = br#"{"seq":3,"at":4,"sparkle":{"a":1},"crc":"00000000"}"#;
        assert_eq!(read_record(new, &blobs).unwrap().unwrap().content, StoredContent::Other);
        let new = br#"{"seq":3,"at":4,"event":{"sparkled":{"a":1}},"crc":"00000000"}"#;
        assert!(read_record(new, &blobs).unwrap().unwrap_err().contains("sparkled"));
    }
}
