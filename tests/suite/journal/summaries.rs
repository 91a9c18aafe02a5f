//! What a list shows comes from the header and the last record of a session; everything else asks for a replay.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use architect::journal::index::{SessionRow, SessionStatus, Updated};
use architect::journal::{Begin, Dispatcher, Fork, Going, Index, SessionId};
use architect::machine::{Event, Mark};
use architect::model::{EffectId, Item, Micros, Origin, Rules, Time, Tokens, Usage};
use architect::port::{Journal as _, Record};
use serde_json::Value;

use super::world::{World, rules};

fn database(world: &World) -> rusqlite::Connection {
    rusqlite::Connection::open(world.root.join("state/index.db")).unwrap()
}

/// Returns how many sessions have their messages in the index.
fn replayed(world: &World) -> u32 {
    let sql = "SELECT count(DISTINCT session) FROM messages";
    database(world).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns what a list of a new index shows, which must be what it shows once every journal was replayed.
fn list(world: &World, case: &str) -> (Vec<SessionRow>, u32) {
    let listed = Index::rebuild(&world.store).unwrap().list().unwrap();
    let count = replayed(world);
    let mut index = Index::open(&world.store).unwrap();
    index.costs().unwrap();
    assert_eq!(index.list().unwrap(), listed, "{case}");
    (listed, count)
}

fn fork(world: &World, session: SessionId, after: Option<u64>) -> SessionId {
    world.store.fork(session, &Fork { after, instead: None, now: SystemTime::now() }).unwrap()
}

/// Resumes a session with another model, which has no price.
fn resume_with_another_model(world: &World, session: SessionId) {
    let opened = world.reopen(session);
    let at = opened.past.at;
    let mut how = world.how(Some("again"));
    how.setting.model = "scripted/other".into();
    how.rules.price = None;
    let Going { journal, fold, outcomes, .. } = opened.go_on(how).unwrap();
    world.drive(journal, fold, outcomes, at);
}

/// Runs a session that another one has dispatched.
fn dispatched(world: &World, by: &Dispatcher) {
    let begin = Begin {
        now: SystemTime::now(),
        dispatched_by: Some(by.clone()),
        setting: world.past(by.session).setting,
        rules: rules(),
        fixed: 100,
        history: vec![],
        task: Item::user(Origin::Task, "\n  a part of it\n"),
    };
    let (journal, header) = world.store.create(SessionId::fresh(), begin).unwrap();
    let (fold, outcomes) = header.start();
    world.drive(journal, fold, outcomes, Time::START);
}

/// Runs a session whose sub-agent has made a model call.
fn with_a_subagent(world: &World) {
    let (mut journal, fold, outcomes) = world.begin();
    let usage = Usage { input: Tokens(5), ..Usage::default() };
    let event = Event::Charged { id: EffectId(99), usage, cost: Micros(3) };
    let met = Mark::of(&fold, &outcomes.effects);
    journal.append(Time(1), Record::Event { event: &event, met, call: None }).unwrap();
    // The machine drops what no call awaits, and it counts for nothing.
    let (fold, _) = fold.accept(Time(1), event);
    world.drive(journal, fold, outcomes, Time(1));
}

#[test]
fn only_sessions_that_have_not_ended_are_replayed_for_a_list() {
    let world = World::new();
    let mut index = Index::open(&world.store).unwrap();
    let sessions = [world.run().0, world.run().0, world.run().0];
    drop(world.begin());
    let updated = Updated { read: 4, replayed: 1, ..Updated::default() };
    assert_eq!(index.update().unwrap(), updated);
    assert_eq!((index.list().unwrap().len(), replayed(&world)), (4, 1));
    assert_eq!(index.update().unwrap(), Updated { unchanged: 4, ..Updated::default() });
    // What needs more of a session replays that one, once.
    assert_eq!(index.show(sessions[0]).unwrap().calls.len(), 4);
    assert_eq!(replayed(&world), 2);
    assert!(!index.events(sessions[1]).unwrap().is_empty());
    assert_eq!(replayed(&world), 3);
    assert_eq!(index.search("\"echo ran\"", 10).unwrap().len(), 3);
    assert_eq!(replayed(&world), 4);
    assert_eq!(index.update().unwrap(), Updated { unchanged: 4, ..Updated::default() });
    world.resume(sessions[2], Some("further"));
    let updated = Updated { read: 1, unchanged: 3, ..Updated::default() };
    assert_eq!(index.update().unwrap(), updated);
    assert_eq!(index.search("further", 10).unwrap().len(), 1);
}

#[test]
fn a_search_that_can_t_write_to_the_index_is_answered_without_it() {
    let world = World::new();
    world.run();
    let mut index = Index::open(&world.store).unwrap();
    let holder = database(&world);
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(index.search("\"echo ran\"", 10).unwrap().len(), 1);
}

#[test]
fn a_list_shows_of_every_kind_of_session_what_a_replay_shows() {
    let world = World::new();
    let (ended, _) = world.run();
    let (resumed, _) = world.run();
    world.resume(resumed, Some("further"));
    let (changed, _) = world.run();
    resume_with_another_model(&world, changed);
    fork(&world, ended, None);
    dispatched(&world, &Dispatcher { session: ended, call: "c1".into() });
    dispatched(&world, &Dispatcher::evaluation(ended));
    let (rows, count) = list(&world, "ended");
    // A session that evaluates another one is not listed.
    assert_eq!((rows.len(), count), (5, 0));
    let models: Vec<_> = rows.iter().map(|row| (row.model.as_deref(), row.cost)).collect();
    assert!(models.contains(&(Some("scripted/other"), None)), "{models:?}");
    with_a_subagent(&world);
    // Somebody else wrote what an imported session says of itself.
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
    let world = World::new();
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

/// Whatever is done to a line: a list says the same of it as a replay, and says that a byte has changed.
#[test]
fn a_list_notices_damage_wherever_it_is() {
    let world = World::new();
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
            // Without its last line a journal is one of a run that was killed.
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
    let world = World::new();
    let (mut journal, fold, outcomes) = world.try_begin_by(Rules::default()).unwrap();
    let session = journal.session();
    let text = "x".repeat(100_000);
    let partial = Record::Partial { id: EffectId(1), text: &text };
    journal.append(Time(1), partial).unwrap();
    world.drive(journal, fold, outcomes, Time(1));
    assert_eq!(list(&world, "whole").1, 0);
    fs::remove_dir_all(world.beside(session).join("blobs")).unwrap();
    let (rows, count) = list(&world, "lost");
    assert!(rows[0].damaged && count == 1, "{rows:?}");
}
