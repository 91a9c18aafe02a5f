//! A list reads the header and the last record of a session; everything else replays it.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use architect::journal::index::{IndexUpdate, SessionRow, SessionStatus};
use architect::journal::{
    ForkOptions, NewSession, ParentCall, ResumedSession, SessionId, SessionIndex,
};
use architect::machine::{Event, Fingerprint};
use architect::model::{
    ConversationItem, EffectId, MessageOrigin, MicroUsd, RunRules, RunTime, Tokens, Usage,
};
use architect::port::{Journal as _, JournalRecord};
use serde_json::Value;

use super::fixture::{SessionFixture, rules};

fn database(world: &SessionFixture) -> rusqlite::Connection {
    rusqlite::Connection::open(world.root.join("state/index.db")).unwrap()
}

/// Returns how many sessions have their messages in the index.
fn replayed(world: &SessionFixture) -> u32 {
    let sql = "SELECT count(DISTINCT session) FROM messages";
    database(world).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns the list of a new index, which must be the same after every journal was replayed.
fn list(world: &SessionFixture, case: &str) -> (Vec<SessionRow>, u32) {
    let listed = SessionIndex::rebuild(&world.store).unwrap().list().unwrap();
    let count = replayed(world);
    let mut index = SessionIndex::open(&world.store).unwrap();
    index.costs().unwrap();
    assert_eq!(index.list().unwrap(), listed, "{case}");
    (listed, count)
}

fn fork(world: &SessionFixture, session: SessionId, after: Option<u64>) -> SessionId {
    world
        .store
        .fork(session, &ForkOptions { after, replacement: None, now: SystemTime::now() })
        .unwrap()
}

/// Resumes a session with another model, which has no price.
fn resume_with_another_model(world: &SessionFixture, session: SessionId) {
    let opened = world.reopen(session);
    let at = opened.history.at;
    let mut how = world.resume_options(Some("again"));
    how.setup.model = "scripted/other".into();
    how.rules.price = None;
    let ResumedSession { journal, machine: fold, output: outcomes, .. } =
        opened.resume(how).unwrap();
    world.drive(journal, fold, outcomes, at);
}

/// Runs a session that another one has dispatched.
fn dispatched(world: &SessionFixture, by: &ParentCall) {
    let begin = NewSession {
        now: SystemTime::now(),
        dispatched_by: Some(by.clone()),
        setup: world.history(by.session).setup,
        rules: rules(),
        fixed_bytes: 100,
        history: vec![],
        task: ConversationItem::user(MessageOrigin::Task, "\n  a part of it\n"),
    };
    let (journal, header) = world.store.create(SessionId::generate(), begin).unwrap();
    let (fold, outcomes) = header.start_machine();
    world.drive(journal, fold, outcomes, RunTime::START);
}

/// Runs a session whose sub-agent has made a model call.
fn with_a_subagent(world: &SessionFixture) {
    let (mut journal, fold, outcomes) = world.begin();
    let usage = Usage { input: Tokens(5), ..Usage::default() };
    let event = Event::UsageReported { id: EffectId(99), usage, cost: MicroUsd(3) };
    let met = Fingerprint::of(&fold, &outcomes.effects);
    journal
        .append(RunTime(1), JournalRecord::Event { event: &event, fingerprint: met, timing: None })
        .unwrap();
    // The machine drops an event that no effect awaits, and it does not count.
    let (fold, _) = fold.handle(RunTime(1), event);
    world.drive(journal, fold, outcomes, RunTime(1));
}

#[test]
fn only_sessions_that_have_not_ended_are_replayed_for_a_list() {
    let world = SessionFixture::new();
    let mut index = SessionIndex::open(&world.store).unwrap();
    let sessions = [world.run().0, world.run().0, world.run().0];
    drop(world.begin());
    let updated = IndexUpdate { read: 4, replayed: 1, ..IndexUpdate::default() };
    assert_eq!(index.update().unwrap(), updated);
    assert_eq!((index.list().unwrap().len(), replayed(&world)), (4, 1));
    assert_eq!(index.update().unwrap(), IndexUpdate { unchanged: 4, ..IndexUpdate::default() });
    // A query that needs more of a session replays that one, once.
    assert_eq!(index.show(sessions[0]).unwrap().calls.len(), 4);
    assert_eq!(replayed(&world), 2);
    assert!(!index.events(sessions[1]).unwrap().is_empty());
    assert_eq!(replayed(&world), 3);
    assert_eq!(index.search("\"echo ran\"", 10).unwrap().len(), 3);
    assert_eq!(replayed(&world), 4);
    assert_eq!(index.update().unwrap(), IndexUpdate { unchanged: 4, ..IndexUpdate::default() });
    world.resume(sessions[2], Some("further"));
    let updated = IndexUpdate { read: 1, unchanged: 3, ..IndexUpdate::default() };
    assert_eq!(index.update().unwrap(), updated);
    assert_eq!(index.search("further", 10).unwrap().len(), 1);
}

#[test]
fn a_search_that_can_t_write_to_the_index_is_answered_without_it() {
    let world = SessionFixture::new();
    world.run();
    let mut index = SessionIndex::open(&world.store).unwrap();
    let holder = database(&world);
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(index.search("\"echo ran\"", 10).unwrap().len(), 1);
}

#[test]
fn a_list_shows_of_every_kind_of_session_what_a_replay_shows() {
    let world = SessionFixture::new();
    let (ended, _) = world.run();
    let (resumed, _) = world.run();
    world.resume(resumed, Some("further"));
    let (changed, _) = world.run();
    resume_with_another_model(&world, changed);
    fork(&world, ended, None);
    dispatched(&world, &ParentCall { session: ended, call: "c1".into() });
    dispatched(&world, &ParentCall::evaluation(ended));
    let (rows, count) = list(&world, "ended");
    // A session that evaluates another one is not listed.
    assert_eq!((rows.len(), count), (5, 0));
    let models: Vec<_> = rows.iter().map(|row| (row.model.as_deref(), row.cost)).collect();
    assert!(models.contains(&(Some("scripted/other"), None)), "{models:?}");
    with_a_subagent(&world);
    // The last record of an imported session is not trusted.
    let file = world.root.join("export.jsonl");
    world.store.export(ended, &mut fs::File::create(&file).unwrap()).unwrap();
    world.store.import(&file, SystemTime::now()).unwrap();
    fork(&world, ended, Some(4));
    drop(world.begin());
    let (rows, count) = list(&world, "others");
    assert_eq!((rows.len(), count), (9, 4));
}

#[test]
fn a_list_shows_of_kept_journals_what_a_replay_shows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals/format-1");
    let world = SessionFixture::new();
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let session = header["header"]["session"].as_str().unwrap().parse().unwrap();
        fs::write(world.journal(session), text).unwrap();
    }
    let (rows, count) = list(&world, "kept");
    assert!(rows.len() >= 7 && rows.iter().all(|row| row.problem.is_none()), "{rows:?}");
    let open = rows.iter().filter(|row| row.status == SessionStatus::Unfinished).count();
    assert_eq!(u32::try_from(open).unwrap(), count);
}

/// Whatever is done to a line: a list shows the same as a replay, and reports a changed byte.
#[test]
fn a_list_notices_damage_wherever_it_is() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    world.resume(session, Some("further"));
    let path = world.journal(session);
    let whole = fs::read(&path).unwrap();
    assert_eq!(list(&world, "whole").1, 0);
    let mut begin = 0;
    for line in whole.split_inclusive(|byte| *byte == b'\n') {
        let end = begin + line.len();
        let middle = usize::midpoint(begin, end);
        for cut in [begin, middle] {
            fs::write(&path, &whole[..cut]).unwrap();
            list(&world, &format!("cut at {cut}"));
        }
        let mut flipped = whole.clone();
        flipped[middle] ^= 1;
        let missing = [&whole[..begin], &whole[end..]].concat();
        for (what, bytes) in [("flipped", flipped), ("missing", missing)] {
            fs::write(&path, bytes).unwrap();
            let case = format!("{what} at {begin}");
            let (rows, count) = list(&world, &case);
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
fn a_list_notices_a_long_text_that_is_lost() {
    let world = SessionFixture::new();
    let (mut journal, fold, outcomes) = world.try_begin_by(RunRules::default()).unwrap();
    let session = journal.session();
    let text = "x".repeat(100_000);
    let partial = JournalRecord::Partial { id: EffectId(1), text: &text };
    journal.append(RunTime(1), partial).unwrap();
    world.drive(journal, fold, outcomes, RunTime(1));
    assert_eq!(list(&world, "whole").1, 0);
    fs::remove_dir_all(world.session_folder(session).join("blobs")).unwrap();
    let (rows, count) = list(&world, "lost");
    assert!(rows[0].damaged && count == 1, "{rows:?}");
}
