//! One record as one line: writing, sealing with a checksum, verifying and parsing.

use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memmem};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::blobs::{BlobRef, BlobStore};
use super::error::{RecordDamage, Result};
use super::header::{EndedRecord, ResumedRecord, SessionHeader, WallTime};
use super::steering_queue::MessageId;
use crate::machine::{Event, EventKind, Fingerprint, StateKind};
use crate::port::CallTiming;
use crate::types::{CheckpointRecord, Digest, EffectId, RunTime, Sha256Digest, TimeSpan};

/// A stored record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredRecord {
    /// Its sequence number, from zero.
    pub seq: u64,
    /// The session time.
    pub at: RunTime,
    /// The wall-clock time, in records that show it to users.
    pub ts: Option<WallTime>,
    /// The fingerprint of the machine before the record.
    pub fingerprint: Option<StoredFingerprint>,
    /// The timing of the model call that the record completes.
    pub timing: Option<CallTiming>,
    /// The time that syncs took since the previous record.
    pub sync_time: TimeSpan,
    /// The messages from other processes that the record contains.
    pub message_ids: Vec<MessageId>,
    /// The SHA-256 of all records before it, in records at which a run is resumed or ends.
    pub hash_before: Option<Sha256Digest>,
    /// Its content.
    pub content: StoredContent,
    /// The texts that are stored separately, with their JSON pointers.
    pub(super) blobs: BTreeMap<String, BlobRef>,
}

/// The content of a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StoredContent {
    /// The header. Only the first record is one.
    Header(Box<SessionHeader>),
    /// An event that the machine accepted.
    Event(Event),
    /// The partial text of a cancelled model call.
    Partial(PartialReply),
    /// The session was resumed.
    Resumed(Box<ResumedRecord>),
    /// The state of the workspace.
    Checkpoint(Box<CheckpointRecord>),
    /// The run ended.
    Ended(EndedRecord),
    /// A record of a newer release that may be ignored.
    #[default]
    Other,
}

/// The result of reading a record.
#[derive(Debug)]
pub enum ReadRecord {
    /// A record.
    Record(Box<StoredRecord>),
    /// An intact record of a kind that this release does not know.
    Unknown(String),
    /// The end of the valid prefix and of the file.
    End,
    /// An invalid record.
    Damage(RecordDamage),
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
    /// The digest of the machine; `None` in an export, behind a masked text.
    pub digest: Option<Digest>,
}

/// A record to write, with its fields in their order.
#[derive(Serialize)]
pub(super) struct RecordLine<'a> {
    pub(super) seq: u64,
    pub(super) at: RunTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ts: Option<WallTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'a str>,
    /// The digest of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mark: Option<String>,
    #[serde(rename = "call", skip_serializing_if = "Option::is_none")]
    pub(super) timing: Option<CallTiming>,
    #[serde(rename = "sync", skip_serializing_if = "is_zero")]
    pub(super) sync_time: TimeSpan,
    #[serde(rename = "mail", skip_serializing_if = "<[MessageId]>::is_empty")]
    pub(super) message_ids: &'a [MessageId],
    #[serde(rename = "chain", skip_serializing_if = "Option::is_none")]
    pub(super) hash_before: Option<Sha256Digest>,
    #[serde(flatten)]
    pub(super) body: RecordBody<'a>,
}

/// The content of a record to write.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordBody<'a> {
    Header(&'a SessionHeader),
    Event(&'a Event),
    Partial { id: EffectId, text: &'a str },
    Resumed(&'a ResumedRecord),
    Checkpoint(&'a CheckpointRecord),
    Ended(&'a EndedRecord),
}

/// The fields of a record, for reading.
#[derive(Deserialize)]
struct ParsedFields<'a> {
    seq: u64,
    #[serde(default)]
    at: RunTime,
    ts: Option<WallTime>,
    #[serde(borrow)]
    state: Option<&'a str>,
    #[serde(borrow)]
    mark: Option<&'a str>,
    #[serde(rename = "call")]
    timing: Option<CallTiming>,
    #[serde(default, rename = "sync")]
    sync_time: TimeSpan,
    #[serde(default, rename = "mail")]
    message_ids: Vec<MessageId>,
    #[serde(rename = "chain")]
    hash_before: Option<Sha256Digest>,
    #[serde(default)]
    blobs: BTreeMap<String, BlobRef>,
    header: Option<Box<SessionHeader>>,
    event: Option<Event>,
    partial: Option<PartialReply>,
    resumed: Option<Box<ResumedRecord>>,
    checkpoint: Option<Box<CheckpointRecord>>,
    ended: Option<EndedRecord>,
}

/// The text before the checksum at the end of a line, and after it.
const CRC_PREFIX: &[u8] = b",\"crc\":\"";
const CRC_SUFFIX: &[u8] = b"\"}";

/// The length of the sealed end of a line.
const SEAL_LENGTH: usize = CRC_PREFIX.len() + 8 + CRC_SUFFIX.len();

/// The text before the hash of the records before a record.
const HASH: &[u8] = b",\"chain\":\"";

/// The prefix of an event record, up to the event's name.
const EVENT: &[u8] = b"\"event\":{\"";

/// The keys of the content of other records.
const OTHER_BODIES: [&[u8]; 5] =
    [b"\"header\":", b"\"partial\":", b"\"resumed\":", b"\"checkpoint\":", b"\"ended\":"];

/// The key for the texts that are stored separately.
const BLOBS: &[u8] = b"\"blobs\":";

/// Finds the beginning of a list of images, which are stored separately: the same image is stored once.
static IMAGES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"images\":[{\"name\":"));

/// Lines longer than this are searched for texts to store separately.
const LONG_LINE: usize = 64 << 10;

/// Texts longer than this are stored in separate files.
const LONG_TEXT: usize = 32 << 10;

// Serde requires a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(span: &TimeSpan) -> bool {
    *span == TimeSpan::ZERO
}

impl<'a> RecordLine<'a> {
    pub(super) fn new(seq: u64, at: RunTime, body: RecordBody<'a>) -> Self {
        Self {
            seq,
            at,
            ts: None,
            state: None,
            mark: None,
            timing: None,
            sync_time: TimeSpan::ZERO,
            message_ids: &[],
            hash_before: None,
            body,
        }
    }

    /// Adds the fingerprint of the machine before the record.
    pub(super) fn with_fingerprint(self, before: Fingerprint) -> Self {
        Self { state: Some(before.state.as_str()), mark: Some(before.digest.to_string()), ..self }
    }

    /// Writes the record to `out`, without checksum and line end.
    ///
    /// Long texts are stored in `blobs` before this returns.
    pub(super) fn write(&self, blobs: &BlobStore, out: &mut Vec<u8>) -> Result<()> {
        let unwritable = |error| blobs.io_error("write a record to", error);
        let is_long = match serde_json::to_writer(ShortWriter { out }, self) {
            Ok(()) => IMAGES.find(out).is_some(),
            Err(error) if error.is_io() => {
                out.clear();
                true
            }
            Err(error) => return Err(unwritable(error)),
        };
        if is_long {
            // Extract long texts from a JSON value: each is copied once, and not into a line first.
            let mut value = serde_json::to_value(self).map_err(unwritable)?;
            let mut moved = BTreeMap::new();
            extract_long_texts(&mut value, "", blobs, &mut moved)?;
            if !moved.is_empty() {
                value["blobs"] = serde_json::to_value(moved).map_err(unwritable)?;
                out.clear();
                serde_json::to_writer(out, &value).map_err(unwritable)?;
            } else if out.is_empty() {
                serde_json::to_writer(out, self).map_err(unwritable)?;
            }
        }
        Ok(())
    }
}

/// A writer that fails once the line is longer than [`LONG_LINE`].
struct ShortWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl io::Write for ShortWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.len() + bytes.len() > LONG_LINE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether the text at a JSON pointer is the content of an image.
fn is_image(pointer: &str) -> bool {
    let mut fields = pointer.rsplit('/');
    fields.next() == Some("data") && fields.nth(1) == Some("images")
}

/// Moves the long texts and the images of the value at this JSON pointer into separate files, and leaves empty texts in
/// their places.
fn extract_long_texts(
    value: &mut Value,
    pointer: &str,
    blobs: &BlobStore,
    moved: &mut BTreeMap<String, BlobRef>,
) -> Result<()> {
    match value {
        Value::String(text)
            if text.len() > LONG_TEXT || (is_image(pointer) && !text.is_empty()) =>
        {
            moved.insert(pointer.to_owned(), blobs.put(text)?);
            text.clear();
            Ok(())
        }
        Value::Array(items) => items.iter_mut().enumerate().try_for_each(|(index, item)| {
            extract_long_texts(item, &format!("{pointer}/{index}"), blobs, moved)
        }),
        Value::Object(fields) => fields.iter_mut().try_for_each(|(name, item)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            extract_long_texts(item, &format!("{pointer}/{name}"), blobs, moved)
        }),
        _ => Ok(()),
    }
}

/// Appends the checksum to a JSON object that has at least one field, and ends the line.
///
/// Each checksum continues the checksum of the previous line, so that a missing, repeated or moved line is detected as
/// well.
pub(crate) fn seal(line: &mut Vec<u8>, before: u32) -> u32 {
    line.pop();
    let crc = checksum(line, before);
    line.extend_from_slice(CRC_PREFIX);
    line.extend_from_slice(format!("{crc:08x}").as_bytes());
    line.extend_from_slice(CRC_SUFFIX);
    line.push(b'\n');
    crc
}

/// Replaces the stored hash of the records before a record, if it has one: in a copy, other records precede it. Only
/// numbers and names precede the hash in the record.
pub(super) fn replace_hash(record: &mut [u8], hash: Sha256Digest) {
    if let Some(start) = memmem::find(record, HASH) {
        let digits = hash.to_string();
        let start = start + HASH.len();
        if let Some(stored) = record.get_mut(start..start + digits.len()) {
            stored.copy_from_slice(digits.as_bytes());
        }
    }
}

/// Splits a line without its end into its body and its checksum. The checksum is not verified.
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

/// Returns the checksum of a line if it continues the previous checksum.
pub(crate) fn verify_seal(line: &[u8], before: u32) -> Result<u32, RecordDamage> {
    let (body, crc) = unseal(line)?;
    if checksum(body, before) == crc { Ok(crc) } else { Err(RecordDamage::WrongChecksum) }
}

/// Returns whether there was a sync between a record and the previous one.
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
/// Returns `None` if the line has to be parsed: it is not an event or has an unknown kind, it is not the record `seq`,
/// its fields are not in the order in which they are written, or some of its texts are stored separately.
pub(super) fn event_kind(line: &[u8], seq: u64) -> Option<EventKind> {
    let fields = line.strip_prefix(format!("{{\"seq\":{seq},").as_bytes())?;
    let (before, event) = fields.split_at(memmem::find(fields, EVENT)?);
    let has = |text: &[u8], key: &[u8]| memmem::find(text, key).is_some();
    // Quotation marks in a text are escaped, so a match is always a key.
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

/// Parses a verified line. Long texts are read from `blobs`.
pub(super) fn read_record(line: &[u8], store: &BlobStore) -> ReadRecord {
    let parse = |line: &[u8]| match serde_json::from_slice::<ParsedFields<'_>>(line) {
        Ok(read) => Ok(read.into_record()),
        Err(error) => Err(ReadRecord::Unknown(error.to_string())),
    };
    let read = || {
        let stored = parse(line)?;
        if stored.blobs.is_empty() {
            return Ok(stored);
        }
        let whole = parse(&restore_long_texts(line, &stored.blobs, store)?)?;
        Ok(StoredRecord { blobs: stored.blobs, ..whole })
    };
    read().map_or_else(|found| found, |stored| ReadRecord::Record(Box::new(stored)))
}

/// Returns a record, with or without its checksum, with all its texts in their places and without the fields that
/// concern only this store. The error is damage, or content that this release doesn't know.
pub(super) fn restore_long_texts(
    line: &[u8],
    moved: &BTreeMap<String, BlobRef>,
    blobs: &BlobStore,
) -> Result<Vec<u8>, ReadRecord> {
    let unknown = |error: serde_json::Error| ReadRecord::Unknown(error.to_string());
    let mut value: Value = serde_json::from_slice(line).map_err(unknown)?;
    for (pointer, blob) in moved {
        let text = blobs
            .get(blob)
            .map_err(|reason| ReadRecord::Damage(RecordDamage::MissingBlob(reason.to_string())))?;
        let location = value.pointer_mut(pointer).ok_or_else(|| {
            ReadRecord::Unknown(format!("there is no place {pointer} for a text"))
        })?;
        *location = Value::String(text);
    }
    if let Value::Object(fields) = &mut value {
        fields.shift_remove("blobs");
        if let Some(Value::Object(header)) = fields.get_mut("header") {
            header.shift_remove("imported");
            header.shift_remove("imported_into");
        }
    }
    serde_json::to_vec(&value).map_err(unknown)
}

impl ParsedFields<'_> {
    fn into_record(self) -> StoredRecord {
        let content = self
            .event
            .map(StoredContent::Event)
            .or(self.partial.map(StoredContent::Partial))
            .or(self.header.map(StoredContent::Header))
            .or(self.resumed.map(StoredContent::Resumed))
            .or(self.checkpoint.map(StoredContent::Checkpoint))
            .or(self.ended.map(StoredContent::Ended));
        let digest = self.mark.and_then(|mark| u64::from_str_radix(mark, 16).ok()).map(Digest);
        let fingerprint =
            self.state.map(|state| StoredFingerprint { state: state.to_owned(), digest });
        StoredRecord {
            seq: self.seq,
            at: self.at,
            ts: self.ts,
            fingerprint,
            timing: self.timing,
            sync_time: self.sync_time,
            message_ids: self.message_ids,
            hash_before: self.hash_before,
            content: content.unwrap_or_default(),
            blobs: self.blobs,
        }
    }
}

impl StoredFingerprint {
    /// Returns whether a replay computed the same fingerprint. Without a digest, only the states are compared.
    pub fn matches(&self, found: Fingerprint) -> bool {
        self.state_kind() == Some(found.state)
            && self.digest.is_none_or(|digest| digest == found.digest)
    }

    /// Returns the state, if this release knows it.
    pub fn state_kind(&self) -> Option<StateKind> {
        StateKind::ALL.into_iter().find(|kind| kind.as_str() == self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Image, ImageType, Tokens, ToolResult, ToolStatus};

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
        let fingerprint = Fingerprint { state: StateKind::CallingSending, digest: Digest(0xab) };
        let line = RecordLine {
            timing: Some(CallTiming {
                encode: TimeSpan(5),
                first_byte: Some(TimeSpan(9)),
                request: None,
                received: Tokens(7),
            }),
            sync_time: TimeSpan(1_000),
            ..RecordLine::new(3, RunTime(44), RecordBody::Event(event))
                .with_fingerprint(fingerprint)
        };
        let mut out = Vec::new();
        line.write(blobs, &mut out).unwrap();
        seal(&mut out, 17);
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    fn record(line: &[u8], blobs: &BlobStore) -> StoredRecord {
        match read_record(line, blobs) {
            ReadRecord::Record(stored) => *stored,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_reads_well() {
        let (_temp, blobs) = blobs();
        let event = Event::Tick { now: RunTime(5) };
        assert_eq!(
            str::from_utf8(&written(&event, &blobs)).unwrap(),
            concat!(
                r#"{"seq":3,"at":44,"state":"Calling.Sending","mark":"00000000000000ab","#,
                r#""call":{"encode":5,"first_byte":9,"received":7},"sync":1000,"event":{"tick":{"now":5}},"crc":"cc8207f2"}"#
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
            let stored = record(&line, &blobs);
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
        let found = read_record(&line, &blobs);
        assert!(matches!(found, ReadRecord::Damage(RecordDamage::MissingBlob(_))), "{found:?}");
    }

    #[test]
    fn what_a_newer_release_adds_is_overlooked_or_not_understood() {
        let (_temp, blobs) = blobs();
        let new = br#"{"seq":3,"at":4,"sparkle":{"a":1},"crc":"00000000"}"#;
        assert_eq!(record(new, &blobs).content, StoredContent::Other);
        let new = br#"{"seq":3,"at":4,"event":{"sparkled":{"a":1}},"crc":"00000000"}"#;
        let ReadRecord::Unknown(reason) = read_record(new, &blobs) else { panic!("it is known") };
        assert!(reason.contains("sparkled"), "{reason}");
    }

    #[test]
    fn an_image_is_stored_once_and_read_back() {
        let (temp, blobs) = blobs();
        let image = |name: &str| Image {
            name: name.into(),
            media_type: ImageType::Png,
            width: 8,
            height: 6,
            tokens: Tokens(1),
            data: "QUJD".into(),
        };
        let result = ToolResult::new("c".into(), ToolStatus::Ok, "two images");
        let result = result.with_images(vec![image("a"), image("b")]);
        let event = Event::ToolCompleted { id: EffectId(7), result };
        let line = written(&event, &blobs);
        assert!(memmem::find(&line, b"QUJD").is_none());
        assert_eq!(std::fs::read_dir(temp.path().join("blobs")).unwrap().count(), 1);
        assert_eq!(record(&line, &blobs).content, StoredContent::Event(event));
    }
}
