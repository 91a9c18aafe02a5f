//! Any change of a journal's bytes: an exact prefix of its records is read, or the damage is reported.

use std::fs;
use std::io::Write as _;

use architect::journal::{
    DamagePolicy, JournalEndKind, JournalError, ReadOnlyReason, RecordDamage, SessionId,
    SessionStore,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::fixture::SessionFixture;
use crate::kit::sealing::resealed;

/// The rest of a journal: bytes of its valid prefix, or nothing if it has no header.
fn prefix(store: &SessionStore, session: SessionId) -> (u64, Option<JournalEndKind>) {
    match store.load(session) {
        Ok((_, end)) => (end.position.offset, Some(end.kind)),
        Err(JournalError::ReadOnly { reason: ReadOnlyReason::Damaged { seq: 0, .. }, .. }) => {
            (0, None)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Fault S2.
#[test]
fn a_journal_that_is_cut_off_at_any_byte_is_a_prefix() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let path = fixture.journal(session);
    let whole = fs::read(&path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for length in (0..whole.len()).rev() {
        file.set_len(length as u64).unwrap();
        let lines = whole[..length].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (kept, kind) = prefix(&fixture.store, session);
        assert_eq!(kept, lines as u64);
        let torn = kind.is_none() || kind == Some(JournalEndKind::Torn(RecordDamage::Unterminated));
        assert_eq!(torn, lines != length || lines == 0, "{length}");
    }
}

/// A modification of a file.
#[derive(Clone, Debug)]
enum Mutation {
    Flip { at: usize, bit: u8 },
    Insert { at: usize, bytes: &'static [u8] },
    Remove { at: usize, length: usize },
    Repeat { at: usize, length: usize },
    Zero { at: usize, length: usize },
    Swap { first: usize, second: usize },
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let all = bytes.len();
        let range = |at: usize, length: usize| at % all..(at % all + length).min(all);
        match *self {
            Self::Flip { at, bit } => bytes[at % all] ^= 1 << bit,
            Self::Insert { at, bytes: new } => {
                bytes.splice(at % all..at % all, new.iter().copied());
            }
            Self::Remove { at, length } => {
                bytes.drain(range(at, length));
            }
            Self::Repeat { at, length } => {
                let range = range(at, length);
                let (end, again) = (range.end, bytes[range].to_vec());
                bytes.splice(end..end, again);
            }
            Self::Zero { at, length } => bytes[range(at, length)].fill(0),
            Self::Swap { first, second } => {
                let mut lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                let count = lines.len();
                lines.swap(first % count, second % count);
                *bytes = lines.concat();
            }
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = 0..1_000_000_usize;
    let new = prop::sample::select(vec![&b"\n"[..], b"\0\0\0\0", b"{}\n", b"\"", b"}\n{", b"\r"]);
    prop_oneof![
        (at.clone(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip { at, bit }),
        (at.clone(), new).prop_map(|(at, bytes)| Mutation::Insert { at, bytes }),
        (at.clone(), 1..5_000_usize).prop_map(|(at, length)| Mutation::Remove { at, length }),
        (at.clone(), 1..5_000_usize).prop_map(|(at, length)| Mutation::Repeat { at, length }),
        (at.clone(), 1..5_000_usize).prop_map(|(at, length)| Mutation::Zero { at, length }),
        (at.clone(), at).prop_map(|(first, second)| Mutation::Swap { first, second }),
    ]
}

/// Fault S2.
#[test]
fn ten_thousand_mutations_leave_an_exact_prefix_or_damage_with_a_name() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let path = fixture.journal(session);
    let whole = fs::read(&path).unwrap();
    let config = Config { cases: 10_000, failure_persistence: None, ..Config::default() };
    let mutations = prop::collection::vec(mutation(), 1..4);
    let tested = TestRunner::new(config).run(&mutations, |mutations| {
        let mut bytes = whole.clone();
        for mutation in mutations {
            if !bytes.is_empty() {
                mutation.apply(&mut bytes);
            }
        }
        // Some file systems sync a file at once that is truncated and written again.
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        let (kept, kind) = prefix(&fixture.store, session);
        let kept = usize::try_from(kept).unwrap();
        prop_assert_eq!(&bytes[..kept], &whole[..kept]);
        if kind == Some(JournalEndKind::Whole) {
            prop_assert_eq!(kept, bytes.len());
        } else {
            // No more bytes than necessary are dropped.
            let same = bytes.iter().zip(&whole).take_while(|(a, b)| a == b).count();
            let lines = bytes[..same].iter().rposition(|byte| *byte == b'\n');
            prop_assert_eq!(kept, lines.map_or(0, |at| at + 1));
        }
        Ok(())
    });
    tested.unwrap();
}

/// Fault S2.
#[test]
fn a_torn_end_is_saved_and_the_next_record_starts_a_new_line() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let path = fixture.journal(session);
    let whole = fs::read(&path).unwrap();
    let torn = br#"{"seq":99,"at":5,"eve"#;
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(torn).unwrap();
    let opened = fixture.reopen(session);
    assert_eq!(fs::read(opened.saved_tail.as_ref().unwrap()).unwrap(), torn);
    opened.resume(fixture.resume_options(Some("more"))).unwrap();
    let text = fs::read(&path).unwrap();
    assert!(text.starts_with(&whole));
    assert!(text[whole.len()..].starts_with(b"{\"seq\":"));
    assert_eq!(prefix(&fixture.store, session).1, Some(JournalEndKind::Whole));
}

/// Fault S2.
#[test]
fn damage_before_intact_records_is_named_and_cut_only_when_asked() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let path = fixture.journal(session);
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, whole.replacen("First a file", "First a fire", 1)).unwrap();
    let error = fixture.store.reopen(session, DamagePolicy::Refuse).unwrap_err().to_string();
    let expected = format!("session {session} can only be read: record 2 at byte ");
    assert!(error.starts_with(&expected), "{error}");
    assert!(error.contains("(wrong checksum), and "), "{error}");
    let opened = fixture.store.reopen(session, DamagePolicy::Truncate).unwrap();
    let saved = fs::read_to_string(opened.saved_tail.as_ref().unwrap()).unwrap();
    assert!(saved.contains("First a fire"));
    drop(opened);
    let kept = fs::read_to_string(&path).unwrap();
    assert_eq!(kept + &saved.replacen("First a fire", "First a file", 1), whole);
}

/// Fault S11.
#[test]
fn a_newer_release_s_journal_can_only_be_read() {
    let fixture = SessionFixture::new();
    let (session, machine) = fixture.run();
    let path = fixture.journal(session);
    let whole = fs::read_to_string(&path).unwrap();
    let newer = whole.replacen("\"format\":1", "\"format\":2", 1);
    fs::write(&path, resealed(&newer)).unwrap();
    let error = fixture.store.reopen(session, DamagePolicy::Truncate).unwrap_err().to_string();
    assert!(
        error.ends_with("can only be read: it was written by a newer release (format 2)"),
        "{error}"
    );
    assert_eq!(fixture.history(session).machine, machine);
}

/// Fault S11.
#[test]
fn optional_records_are_ignored_and_required_ones_are_not() {
    let fixture = SessionFixture::new();
    let (session, machine) = fixture.run();
    let path = fixture.journal(session);
    let whole = fs::read_to_string(&path).unwrap();
    let last = whole.lines().count() - 1;
    let line = whole.lines().last().unwrap();
    let sparkle = line.replacen("\"ended\":", "\"sparkled\":", 1);
    fs::write(&path, resealed(&whole.replacen(line, &sparkle, 1))).unwrap();
    assert_eq!(fixture.reopen(session).history.machine, machine);
    let event = line.replacen("\"ended\":", "\"event\":", 1);
    fs::write(&path, resealed(&whole.replacen(line, &event, 1))).unwrap();
    let error = fixture.store.reopen(session, DamagePolicy::Truncate).unwrap_err().to_string();
    let expected = format!("can only be read: record {last} is unknown to this release:");
    assert!(error.contains(&expected), "{error}");
}
