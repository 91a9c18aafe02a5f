//! One record as one line: how it is written, sealed, opened and read.

use std::collections::BTreeMap;

use memchr::{memchr, memmem};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::blobs::{Blob, Blobs};
use super::error::JournalError;
use super::header::{Ended, Header, Resumed, Wall};
use super::mail::MailId;
use super::reader::Damage;
use crate::machine::{Event, EventKind, Mark, StateKind};
use crate::model::{Digest, EffectId, Span, Time};
use crate::port::CallTimes;

/// A record that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its place, counted from zero.
    pub seq: u64,
    /// When it was written, in the time of the session.
    pub at: Time,
    /// The time of day, where people look for it.
    pub ts: Option<Wall>,
    /// Where the run stood when it came.
    pub met: Option<StoredMark>,
    /// Where the time of the model call went that it completes.
    pub call: Option<CallTimes>,
    /// How long making records durable took since the record before.
    pub sync: Span,
    /// The messages from other processes that it contains.
    pub mail: Vec<MailId>,
    /// What it says.
    pub content: Content,
    /// The long texts that it keeps elsewhere, with their places.
    pub(super) moved: BTreeMap<String, Blob>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// What the session was begun with; the first record, and no other.
    Header(Box<Header>),
    /// An event that the machine accepted.
    Event(Event),
    /// What a model call had said before it was cancelled.
    Partial(Partial),
    /// The session goes on.
    Resumed(Box<Resumed>),
    /// The run was over.
    Ended(Ended),
    /// Something of a newer release that may be overlooked.
    Other,
}

/// What a model call had said before it was cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// The call.
    pub id: EffectId,
    /// The text.
    pub text: String,
}

/// A [`Mark`] as it was stored. A newer release may have states that this one has no name for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMark {
    /// The name of the state.
    pub state: String,
    /// The digest of the rest.
    pub digest: Option<Digest>,
}

/// A record that is to be written.
pub(super) struct Line<'a> {
    pub(super) seq: u64,
    pub(super) at: Time,
    pub(super) ts: Option<Wall>,
    pub(super) met: Option<Mark>,
    pub(super) call: Option<CallTimes>,
    pub(super) sync: Span,
    pub(super) mail: &'a [MailId],
    pub(super) body: Body<'a>,
}

/// What a record says that is to be written.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Body<'a> {
    Header(&'a Header),
    Event(&'a Event),
    Partial { id: EffectId, text: &'a str },
    Resumed(&'a Resumed),
    Ended(&'a Ended),
}

/// The fields of a line, in the order in which they are written.
#[derive(Serialize)]
struct Fields<'a> {
    seq: u64,
    at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Wall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallTimes>,
    #[serde(skip_serializing_if = "is_zero")]
    sync: Span,
    #[serde(skip_serializing_if = "<[MailId]>::is_empty")]
    mail: &'a [MailId],
    #[serde(flatten)]
    body: &'a Body<'a>,
}

/// The same fields, as they are read.
#[derive(Deserialize)]
struct Read<'a> {
    seq: u64,
    #[serde(default)]
    at: Time,
    #[serde(default)]
    ts: Option<Wall>,
    #[serde(default, borrow)]
    state: Option<&'a str>,
    #[serde(default, borrow)]
    mark: Option<&'a str>,
    #[serde(default)]
    call: Option<CallTimes>,
    #[serde(default)]
    sync: Span,
    #[serde(default)]
    mail: Vec<MailId>,
    #[serde(default)]
    blobs: BTreeMap<String, Blob>,
    #[serde(default)]
    header: Option<Box<Header>>,
    #[serde(default)]
    event: Option<Event>,
    #[serde(default)]
    partial: Option<Partial>,
    #[serde(default)]
    resumed: Option<Box<Resumed>>,
    #[serde(default)]
    ended: Option<Ended>,
}

/// What stands before the checksum at the end of a line, and what stands behind it.
const BEFORE: &[u8] = b",\"crc\":\"";
const BEHIND: &[u8] = b"\"}";

/// The length of a checksum with what stands around it.
const SEAL: usize = BEFORE.len() + 8 + BEHIND.len();

/// How the event of a record begins, up to its name.
const EVENT: &[u8] = b"\"event\":{\"";

/// The keys under which other records have what they say.
const OTHER_BODIES: [&[u8]; 4] = [b"\"header\":", b"\"partial\":", b"\"resumed\":", b"\"ended\":"];

/// The key under which a record names the texts that are stored apart.
const BLOBS: &[u8] = b"\"blobs\":";

/// A line that is longer than this is looked through for texts that are better kept apart.
const LONG_LINE: usize = 64 << 10;

/// A text that is longer than this is kept in a file of its own.
const LONG_TEXT: usize = 32 << 10;

// Serde wants a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(span: &Span) -> bool {
    *span == Span::ZERO
}

impl Line<'_> {
    /// Writes the record to `out`, without seal and line end.
    ///
    /// Long texts go to `blobs`; they are there when this returns.
    pub(super) fn write(&self, blobs: &Blobs, out: &mut Vec<u8>) -> Result<(), JournalError> {
        let fields = Fields {
            seq: self.seq,
            at: self.at,
            ts: self.ts,
            state: self.met.map(|mark| mark.state.name()),
            mark: self.met.map(|mark| mark.digest.to_string()),
            call: self.call,
            sync: self.sync,
            mail: self.mail,
            body: &self.body,
        };
        let unwritable = |error| blobs.failed("write a record to", error);
        serde_json::to_writer(&mut *out, &fields).map_err(unwritable)?;
        if out.len() > LONG_LINE {
            let mut value: Value = serde_json::from_slice(out).map_err(unwritable)?;
            let mut moved = BTreeMap::new();
            lift(&mut value, &mut String::new(), blobs, &mut moved)?;
            if !moved.is_empty() {
                value["blobs"] = serde_json::to_value(moved).map_err(unwritable)?;
                out.clear();
                serde_json::to_writer(out, &value).map_err(unwritable)?;
            }
        }
        Ok(())
    }
}

/// Moves the long texts of a value into files of their own; empty ones stay in their places.
fn lift(
    value: &mut Value,
    pointer: &mut String,
    blobs: &Blobs,
    moved: &mut BTreeMap<String, Blob>,
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
                lift(item, pointer, blobs, moved)?;
                pointer.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                lift(item, pointer, blobs, moved)?;
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

/// Puts the checksum at the end of a JSON object that has at least one field, and ends the line.
///
/// Each checksum goes on from that of the line before: a line that is missing, repeated or moved shows as well.
pub(super) fn seal(line: &mut Vec<u8>, before: u32) -> u32 {
    line.pop();
    let crc = checksum(line, before);
    line.extend_from_slice(BEFORE);
    line.extend_from_slice(format!("{crc:08x}").as_bytes());
    line.extend_from_slice(BEHIND);
    line.push(b'\n');
    crc
}

/// Takes the seal off a line without its end, whether it is right or not.
pub(super) fn unseal(line: &[u8]) -> Result<(&[u8], u32), Damage> {
    let (body, seal) =
        line.split_at_checked(line.len().wrapping_sub(SEAL)).ok_or(Damage::NoSeal)?;
    let digits = seal.strip_prefix(BEFORE).and_then(|seal| seal.strip_suffix(BEHIND));
    let digits =
        digits.filter(|digits| digits.iter().all(|digit| b"0123456789abcdef".contains(digit)));
    let crc = digits.and_then(|digits| u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
    Ok((body, crc.ok_or(Damage::NoSeal)?))
}

/// Opens a line: returns its checksum, when that goes on from the one before.
pub(super) fn open(line: &[u8], before: u32) -> Result<u32, Damage> {
    let (body, crc) = unseal(line)?;
    if checksum(body, before) == crc { Ok(crc) } else { Err(Damage::Checksum) }
}

/// Returns whether a record says that there was a sync between it and the one before.
pub(super) fn is_after_sync(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Synced {
        #[serde(default)]
        sync: Span,
    }
    serde_json::from_slice(line).is_ok_and(|Synced { sync }| sync > Span::ZERO)
}

/// Returns the kind of the event in an intact line, without parsing the event.
///
/// `None` if the line has to be parsed: it is no event or one of an unknown kind, it is not the record `seq`, its fields
/// are not in the order in which they are written, or some of its texts are stored apart.
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
    EventKind::ALL.into_iter().find(|kind| kind.name().as_bytes().eq_ignore_ascii_case(name))
}

pub(super) fn checksum(body: &[u8], before: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(body);
    hasher.finalize()
}

/// Reads a line that was opened; long texts are fetched from `blobs`.
///
/// The outer error tells what is damaged, the inner one what this release does not understand.
pub(super) fn read(line: &[u8], blobs: &Blobs) -> Result<Result<Stored, String>, Damage> {
    let read: Read<'_> = match serde_json::from_slice(line) {
        Ok(read) => read,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if read.blobs.is_empty() {
        return Ok(Ok(read.stored()));
    }
    let moved = read.blobs;
    let whole = match lower(line, &moved, blobs)? {
        Ok(whole) => whole,
        Err(why) => return Ok(Err(why)),
    };
    let read: Result<Read<'_>, _> = serde_json::from_slice(&whole);
    Ok(match read {
        Ok(read) => Ok(Stored { moved, ..read.stored() }),
        Err(error) => Err(error.to_string()),
    })
}

/// Returns a record, with its seal or without, with all its texts in their places. What is said of this store alone is
/// left out.
pub(super) fn lower(
    line: &[u8],
    moved: &BTreeMap<String, Blob>,
    blobs: &Blobs,
) -> Result<Result<Vec<u8>, String>, Damage> {
    let mut value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return Ok(Err(error.to_string())),
    };
    for (pointer, blob) in moved {
        let text = blobs.get(blob).map_err(|why| Damage::Blob(why.to_string()))?;
        match value.pointer_mut(pointer) {
            Some(place) => *place = Value::String(text),
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

impl Read<'_> {
    fn stored(self) -> Stored {
        let content = self
            .event
            .map(Content::Event)
            .or(self.partial.map(Content::Partial))
            .or(self.header.map(Content::Header))
            .or(self.resumed.map(Content::Resumed))
            .or(self.ended.map(Content::Ended));
        let digest = self.mark.and_then(|mark| u64::from_str_radix(mark, 16).ok()).map(Digest);
        Stored {
            seq: self.seq,
            at: self.at,
            ts: self.ts,
            met: self.state.map(|state| StoredMark { state: state.to_owned(), digest }),
            call: self.call,
            sync: self.sync,
            mail: self.mail,
            content: content.unwrap_or(Content::Other),
            moved: BTreeMap::new(),
        }
    }
}

impl StoredMark {
    /// Returns whether this is the mark that a replay has found.
    pub fn is(&self, found: Mark) -> bool {
        self.kind() == Some(found.state) && self.digest == Some(found.digest)
    }

    /// Returns the state, when this release knows it.
    pub fn kind(&self) -> Option<StateKind> {
        StateKind::ALL.into_iter().find(|kind| kind.name() == self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ToolResult, ToolStatus};

    fn blobs() -> (tempfile::TempDir, Blobs) {
        let temp = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(temp.path().join("blobs"), super::super::Durability::Os);
        (temp, blobs)
    }

    fn settled(text: &str) -> Event {
        let result = ToolResult::new("c".into(), ToolStatus::Ok, text);
        Event::Settled { id: EffectId(7), result }
    }

    fn written(event: &Event, blobs: &Blobs) -> Vec<u8> {
        let line = Line {
            seq: 3,
            at: Time(44),
            ts: None,
            met: Some(Mark { state: StateKind::CallingSending, digest: Digest(0xab) }),
            call: Some(CallTimes { encode: Span(5), first_byte: Some(Span(9)) }),
            sync: Span(1_000),
            mail: &[],
            body: Body::Event(event),
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
        let event = Event::Tick { now: Time(5) };
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
            assert!(open(&line, 17).is_ok());
            let stored = read(&line, &blobs).unwrap().unwrap();
            assert_eq!(stored.content, Content::Event(settled(text)));
            assert_eq!((stored.seq, stored.at, stored.sync), (3, Time(44), Span(1_000)));
            assert_eq!(stored.met.unwrap().kind(), Some(StateKind::CallingSending));
            assert_eq!(stored.call.unwrap().first_byte, Some(Span(9)));
        }
    }

    #[test]
    fn the_kind_of_an_event_is_known_without_parsing_it() {
        let (_temp, blobs) = blobs();
        let looks_like_keys = r#"{"ended":{},"blobs":{},"event":{"tick":{}}}"#;
        let line = written(&settled(looks_like_keys), &blobs);
        assert_eq!(event_kind(&line, 3), Some(EventKind::Settled));
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
        assert_eq!(open(&line, 16), Err(Damage::Checksum));
        for bit in 0..line.len() * 8 {
            let mut line = line.clone();
            line[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&line, 17).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_long_text_that_is_lost_is_named_and_not_replaced_by_nothing() {
        let (temp, blobs) = blobs();
        let line = written(&settled(&"x".repeat(100_000)), &blobs);
        std::fs::remove_dir_all(temp.path().join("blobs")).unwrap();
        assert!(matches!(read(&line, &blobs), Err(Damage::Blob(_))));
    }

    #[test]
    fn what_a_newer_release_adds_is_overlooked_or_not_understood() {
        let (_temp, blobs) = blobs();
        let new = br#"{"seq":3,"at":4,"sparkle":{"a":1},"crc":"00000000"}"#;
        assert_eq!(read(new, &blobs).unwrap().unwrap().content, Content::Other);
        let new = br#"{"seq":3,"at":4,"event":{"sparkled":{"a":1}},"crc":"00000000"}"#;
        assert!(read(new, &blobs).unwrap().unwrap_err().contains("sparkled"));
    }
}
