//! A list reads the header and the last record of a session; everything else replays it.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use architect::journal::index::{IndexUpdate, SessionDetail, SessionRow, SessionStatus};
use architect::journal::{
    ForkOptions, ParentCall, ResumedSession, SessionHeader, SessionId, SessionIndex,
};
use architect::machine::{Event, Fingerprint};
use architect::net::Secrets;
use architect::port::{Journal as _, JournalRecord};
use architect::types::{
    ConversationItem, EffectId, MessageOrigin, MicroUsd, RunRules, RunTime, Tokens, Usage,
};
use serde_json::Value;

use super::fixture::{SessionFixture, rules};

fn database(fixture: &SessionFixture) -> rusqlite::Connection {
    rusqlite::Connection::open(fixture.root.join("state/index.db")).unwrap()
}

/// Returns how many sessions have their messages in the index.
fn replayed(fixture: &SessionFixture) -> u32 {
    let sql = "SELECT count(DISTINCT session) FROM messages";
    database(fixture).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns the list of a new index, which must be the same after every journal was replayed.
fn list(fixture: &SessionFixture, case: &str) -> (Vec<SessionRow>, u32) {
    let listed = SessionIndex::rebuild(&fixture.store).unwrap().list().unwrap();
    let count = replayed(fixture);
    let mut index = SessionIndex::open(&fixture.store).unwrap();
    index.costs().unwrap();
    assert_eq!(index.list().unwrap(), listed, "{case}");
    (listed, count)
}

fn fork(fixture: &SessionFixture, session: SessionId, after: Option<u64>) -> SessionId {
    fixture
        .store
        .fork(
            session,
            &ForkOptions {
                after,
                replacement: None,
                lane: None,
                workspace: None,
                now: SystemTime::now(),
            },
        )
        .unwrap()
}

/// Resumes a session with another model, which has no price.
fn resume_with_another_model(fixture: &SessionFixture, session: SessionId) {
    let opened = fixture.reopen(session);
    let at = opened.history.at;
    let mut how = fixture.resume_options(Some("again"));
    how.setup.model = "scripted/other".into();
    how.rules.price = None;
    let ResumedSession { journal, machine, output, .. } = opened.resume(how).unwrap();
    fixture.drive(journal, machine, output, at);
}

/// Runs a session that another one has dispatched.
fn dispatched(fixture: &SessionFixture, by: &ParentCall) {
    let task = ConversationItem::user(MessageOrigin::Task, "\n  a part of it\n");
    let (session, setup) = (SessionId::generate(), fixture.history(by.session).setup);
    let header = SessionHeader {
        dispatched_by: Some(by.clone()),
        fixed_bytes: 100,
        ..SessionHeader::new(session, SystemTime::now(), setup, rules(), task)
    };
    let journal = fixture.store.create(&header).unwrap();
    let (machine, output) = header.start_machine();
    fixture.drive(journal, machine, output, RunTime::START);
}

/// Runs a session whose sub-agent has made a model call.
fn with_a_subagent(fixture: &SessionFixture) {
    let (mut journal, machine, output) = fixture.begin();
    let usage = Usage { input: Tokens(5), ..Usage::default() };
    let event = Event::UsageReported { id: EffectId(99), usage, cost: MicroUsd(3) };
    let met = Fingerprint::of(&machine, &output.effects);
    journal
        .append(RunTime(1), JournalRecord::Event { event: &event, fingerprint: met, timing: None })
        .unwrap();
    // The machine drops an event that no effect awaits, and it does not count.
    let (machine, _) = machine.handle(RunTime(1), event);
    fixture.drive(journal, machine, output, RunTime(1));
}

#[test]
fn only_sessions_that_have_not_ended_are_replayed_for_a_list() {
    let fixture = SessionFixture::new();
    let mut index = SessionIndex::open(&fixture.store).unwrap();
    let sessions = [fixture.run().0, fixture.run().0, fixture.run().0];
    drop(fixture.begin());
    let updated = IndexUpdate { read: 4, replayed: 1, ..IndexUpdate::default() };
    assert_eq!(index.update().unwrap(), updated);
    assert_eq!((index.list().unwrap().len(), replayed(&fixture)), (4, 1));
    assert_eq!(index.update().unwrap(), IndexUpdate { unchanged: 4, ..IndexUpdate::default() });
    // The details of a session come from its journal.
    assert_eq!(SessionDetail::load(&fixture.store, sessions[0]).unwrap().calls.len(), 4);
    assert_eq!(replayed(&fixture), 1);
    // The first query that needs the content of the sessions replays them, once.
    assert_eq!(index.search("\"echo ran\"", 10).unwrap().len(), 3);
    assert_eq!(replayed(&fixture), 4);
    assert_eq!(index.update().unwrap(), IndexUpdate { unchanged: 4, ..IndexUpdate::default() });
    fixture.resume(sessions[2], Some("further"));
    let updated = IndexUpdate { read: 1, unchanged: 3, ..IndexUpdate::default() };
    assert_eq!(index.update().unwrap(), updated);
    assert_eq!(index.search("further", 10).unwrap().len(), 1);
}

#[test]
fn a_search_that_cannot_write_the_index_is_answered_from_memory() {
    let fixture = SessionFixture::new();
    fixture.run();
    let mut index = SessionIndex::open(&fixture.store).unwrap();
    let holder = database(&fixture);
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(index.search("\"echo ran\"", 10).unwrap().len(), 1);
}

#[test]
fn a_list_agrees_with_a_replay_for_every_kind_of_session() {
    let fixture = SessionFixture::new();
    let (ended, _) = fixture.run();
    let (resumed, _) = fixture.run();
    fixture.resume(resumed, Some("further"));
    let (changed, _) = fixture.run();
    resume_with_another_model(&fixture, changed);
    fork(&fixture, ended, None);
    dispatched(&fixture, &ParentCall { session: ended, call: "c1".into() });
    dispatched(&fixture, &ParentCall::evaluation(ended));
    let (rows, count) = list(&fixture, "ended");
    // A session that evaluates another one is not listed.
    assert_eq!((rows.len(), count), (5, 0));
    let models: Vec<_> = rows.iter().map(|row| (row.model.as_deref(), row.cost)).collect();
    assert!(models.contains(&(Some("scripted/other"), None)), "{models:?}");
    with_a_subagent(&fixture);
    // The last record of an imported session is not trusted.
    let file = fixture.root.join("export.jsonl");
    fixture
        .store
        .export(ended, &Secrets::default(), &mut fs::File::create(&file).unwrap())
        .unwrap();
    fixture.store.import(&file, Path::new("/"), SystemTime::now()).unwrap();
    fork(&fixture, ended, Some(4));
    drop(fixture.begin());
    let (rows, count) = list(&fixture, "others");
    assert_eq!((rows.len(), count), (9, 4));
}

#[test]
fn a_list_agrees_with_a_replay_for_stored_journals() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals/format-1");
    let fixture = SessionFixture::new();
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let session = header["header"]["session"].as_str().unwrap().parse().unwrap();
        fs::write(fixture.journal(session), text).unwrap();
    }
    let (rows, count) = list(&fixture, "kept");
    assert!(rows.len() >= 7 && rows.iter().all(|row| row.problem.is_none()), "{rows:?}");
    let open = rows.iter().filter(|row| row.status == SessionStatus::Unfinished).count();
    assert_eq!(u32::try_from(open).unwrap(), count);
}

/// After any change of a line, a list shows the same as a replay, and reports the changed byte.
#[test]
fn a_list_detects_damage_anywhere() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    fixture.resume(session, Some("further"));
    let path = fixture.journal(session);
    let whole = fs::read(&path).unwrap();
    assert_eq!(list(&fixture, "whole").1, 0);
    let mut begin = 0;
    for line in whole.split_inclusive(|byte| *byte == b'\n') {
        let end = begin + line.len();
        let middle = usize::midpoint(begin, end);
        for cut in [begin, middle] {
            fs::write(&path, &whole[..cut]).unwrap();
            list(&fixture, &format!("cut at {cut}"));
        }
        let mut flipped = whole.clone();
        flipped[middle] ^= 1;
        let missing = [&whole[..begin], &whole[end..]].concat();
        for (what, bytes) in [("flipped", flipped), ("missing", missing)] {
            fs::write(&path, bytes).unwrap();
            let case = format!("{what} at {begin}");
            let (rows, count) = list(&fixture, &case);
            // Without its last line a journal is that of a killed run.
            let is_damaged = what == "flipped" || end < whole.len();
            assert_eq!(
                (rows[0].damaged, rows[0].problem.is_some()),
                (is_damaged, is_damaged),
                "{case}"
            );
            assert!(count == 1 || rows[0].status == SessionStatus::Unreadable, "{case}");
        }
        begin = end;
    }
}

#[test]
fn a_list_detects_a_missing_long_text() {
    let fixture = SessionFixture::new();
    let (mut journal, machine, output) = fixture.try_begin_by(RunRules::default()).unwrap();
    let session = journal.session();
    let text = "x".repeat(100_000);
    let partial = JournalRecord::Partial { id: EffectId(1), text: &text };
    journal.append(RunTime(1), partial).unwrap();
    fixture.drive(journal, machine, output, RunTime(1));
    assert_eq!(list(&fixture, "whole").1, 0);
    fs::remove_dir_all(fixture.session_folder(session).join("blobs")).unwrap();
    let (rows, count) = list(&fixture, "lost");
    assert!(rows[0].damaged && count == 1, "{rows:?}");
}
