//! The index across sessions: its answers, its updates, and that nothing in its file can do harm.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use architect::journal::index::{IndexUpdate, MessageRole, SearchHit, SessionRow, SessionStatus};
use architect::journal::{ForkOptions, SessionIndex};
use architect::machine::StateKind;
use architect::model::{FileAction, MicroUsd, Tokens};
use serde_json::json;

use super::fixture::SessionFixture;

fn file(world: &SessionFixture) -> PathBuf {
    world.root.join("state/index.db")
}

fn open(world: &SessionFixture) -> SessionIndex {
    SessionIndex::open(&world.store).unwrap()
}

fn list(world: &SessionFixture) -> Vec<SessionRow> {
    open(world).list().unwrap()
}

fn found(world: &SessionFixture, text: &str) -> Vec<(MessageRole, Option<String>)> {
    let hits = open(world).search(text, 100).unwrap();
    hits.into_iter().map(|hit| (hit.role, hit.name)).collect()
}

#[test]
fn a_session_is_listed_with_what_it_came_to() {
    let world = SessionFixture::new();
    let (session, fold) = world.run();
    let row = &list(&world)[0];
    let run = fold.state.run();
    assert_eq!((row.session_id, row.status), (session, SessionStatus::Success));
    assert_eq!(row.stop_reason.as_deref(), Some("llm_done"));
    assert_eq!((row.steps, row.llm_calls, row.tokens), (3, 4, Tokens(440)));
    assert_eq!(row.cost, Some(run.used.cost));
    assert_eq!(row.model.as_deref(), Some("scripted/world"));
    assert_eq!(row.workspace.as_deref(), fs::canonicalize(world.workspace()).unwrap().to_str());
    assert_eq!(row.prompt.as_deref(), Some("do it"));
    assert_eq!(row.bytes, fs::metadata(world.journal(session)).unwrap().len());
    let json = serde_json::to_value(row).unwrap();
    assert_eq!((&json["status"], &json["cost"]), (&json!("success"), &json!(0.0008)));
}

#[test]
fn the_session_that_was_written_to_last_comes_first() {
    let world = SessionFixture::new();
    let (first, second) = (world.run().0, world.run().0);
    let order = || list(&world).iter().map(|row| row.session_id).collect::<Vec<_>>();
    let touch = |session, seconds| {
        let file = fs::File::options().append(true).open(world.journal(session)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    touch(first, 1);
    touch(second, 2);
    assert_eq!(order(), [second, first]);
    touch(first, 3);
    assert_eq!(order(), [first, second]);
}

#[test]
fn a_session_that_runs_is_told_from_one_whose_process_is_gone() {
    let world = SessionFixture::new();
    let (journal, _, _) = world.begin();
    assert_eq!(list(&world)[0].status, SessionStatus::Running);
    drop(journal);
    assert_eq!(list(&world)[0].status, SessionStatus::Unfinished);
}

#[test]
fn only_journals_that_have_changed_are_read_again() {
    let world = SessionFixture::new();
    let (first, second) = (world.run().0, world.run().0);
    let mut index = open(&world);
    assert_eq!(index.update().unwrap(), IndexUpdate { unchanged: 2, ..IndexUpdate::default() });
    world.resume(first, Some("further"));
    let updated = IndexUpdate { read: 1, unchanged: 1, ..IndexUpdate::default() };
    assert_eq!(index.update().unwrap(), updated);
    world.store.remove(second).unwrap();
    let updated = IndexUpdate { unchanged: 1, removed: 1, ..IndexUpdate::default() };
    assert_eq!(index.update().unwrap(), updated);
    assert_eq!(list(&world).len(), 1);
}

#[test]
fn all_that_was_said_is_found_and_said_to_be_whose() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    let told = Some("task".to_owned());
    assert_eq!(found(&world, "do it"), [(MessageRole::User, told)]);
    assert_eq!(found(&world, "DONE"), [(MessageRole::Assistant, None)]);
    assert_eq!(found(&world, "\"echo ran\""), [(MessageRole::ToolCall, Some("run".into()))]);
    assert_eq!(found(&world, "writ*").len(), 2);
    assert_eq!(found(&world, "written first"), []);
    assert_eq!(found(&world, "nowhere"), []);
    world.resume(session, Some("do something else"));
    assert_eq!(found(&world, "\"do it\"").len(), 1);
    assert_eq!(found(&world, "something else").len(), 1);
    world.store.remove(session).unwrap();
    assert_eq!(found(&world, "do"), []);
}

#[test]
fn what_is_found_is_shown_with_what_stands_around_it() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    let hits = open(&world).search("echo", 1).unwrap();
    let [SearchHit { session_id, snippet, prompt, .. }] = &hits[..] else { panic!("{hits:?}") };
    assert_eq!((*session_id, prompt.as_deref()), (session, Some("do it")));
    assert_eq!(snippet, r#"{"command":"echo ran >> ran.log"}"#);
}

#[test]
fn a_session_is_shown_with_its_messages_calls_and_files() {
    let world = SessionFixture::new();
    let (session, fold) = world.run();
    let detail = open(&world).show(session).unwrap();
    let roles: Vec<MessageRole> = detail.messages.iter().map(|message| message.role).collect();
    let (call, result, text) =
        (MessageRole::ToolCall, MessageRole::ToolResult, MessageRole::Assistant);
    let expected =
        [MessageRole::User, text, call, result, call, result, call, call, result, result, text];
    assert_eq!(roles, expected);
    let cost: u64 = detail.calls.iter().map(|call| call.cost.unwrap().0).sum();
    assert_eq!((detail.calls.len(), MicroUsd(cost)), (4, fold.state.run().used.cost));
    let files: Vec<_> = detail.files.iter().map(|file| (&*file.path, file.action)).collect();
    assert_eq!(files, [("a.txt", FileAction::Created), ("b.txt", FileAction::Created)]);
    let json = serde_json::to_value(&detail).unwrap();
    assert_eq!(json["session_id"], json!(session.to_string()));
    assert_eq!(json["messages"][2]["role"], json!("tool_call"));
}

#[test]
fn every_event_of_a_session_is_known_with_its_state() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    let events = open(&world).events(session).unwrap();
    assert_eq!((&*events[0].event, &*events[0].state), ("prepared", "Preparing"));
    let last = events.last().unwrap();
    assert_eq!((&*last.event, &*last.state), ("ended", StateKind::Done.name()));
    assert!(events.is_sorted_by_key(|event| event.seq));
}

#[test]
fn costs_are_summed_over_sessions() {
    let world = SessionFixture::new();
    let spent = [world.run().1, world.run().1].map(|fold| fold.state.run().used.cost.0);
    let costs = open(&world).costs().unwrap();
    assert_eq!(costs.iter().map(|row| row.llm_calls).sum::<u64>(), 8);
    assert_eq!(costs.iter().map(|row| row.cost.unwrap().0).sum::<u64>(), spent.iter().sum::<u64>());
    assert!(costs.iter().all(|row| row.purpose == "agent" && row.model == "scripted/world"));
}

#[test]
fn what_a_fork_has_copied_is_not_paid_for_twice() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    let before = open(&world).costs().unwrap();
    let fork = ForkOptions { after: None, replacement: None, now: SystemTime::now() };
    world.store.fork(session, &fork).unwrap();
    assert_eq!(open(&world).costs().unwrap(), before);
}

#[test]
fn a_journal_that_can_t_be_read_is_listed_with_its_problem() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    fs::write(world.journal(session), "no journal\n").unwrap();
    let row = &list(&world)[0];
    assert_eq!(row.status, SessionStatus::Unreadable);
    assert!(row.problem.as_deref().unwrap().contains("can only be read"), "{:?}", row.problem);
    assert_eq!(open(&world).show(session).unwrap().messages, []);
}

#[test]
fn old_sessions_go_but_never_one_that_runs() {
    let world = SessionFixture::new();
    let (old, _) = world.run();
    let (running, _, _) = world.begin();
    let later = SystemTime::now() + Duration::from_secs(60);
    let mut index = open(&world);
    assert_eq!(index.clean_up(later).unwrap(), [old]);
    assert_eq!(index.list().unwrap()[0].session_id, running.session());
    assert!(index.remove(running.session()).is_err());
    assert_eq!(index.list().unwrap().len(), 1);
}

/// Fault S7.
#[test]
fn the_index_is_the_users_alone() {
    let world = SessionFixture::new();
    world.run();
    list(&world);
    let mode = fs::metadata(file(&world)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Fault S10.
#[test]
fn an_index_that_is_no_database_or_another_one_is_made_anew() {
    let world = SessionFixture::new();
    world.run();
    let rows = list(&world);
    let whole = fs::read(file(&world)).unwrap();
    let foreign = world.root.join("foreign.db");
    let database = rusqlite::Connection::open(&foreign).unwrap();
    database.execute_batch("CREATE TABLE sessions (id TEXT); PRAGMA user_version = 1").unwrap();
    let newer = world.root.join("newer.db");
    fs::write(&newer, &whole).unwrap();
    let database = rusqlite::Connection::open(&newer).unwrap();
    database.execute_batch("PRAGMA user_version = 99").unwrap();
    let contents =
        [b"no database".repeat(1000), vec![], fs::read(foreign).unwrap(), fs::read(newer).unwrap()];
    for content in contents {
        fs::write(file(&world), content).unwrap();
        assert_eq!(list(&world), rows);
        // It was not answered from memory: the next one finds everything.
        let updated = open(&world).update().unwrap();
        assert_eq!(updated, IndexUpdate { unchanged: 1, ..IndexUpdate::default() });
    }
}

/// Fault S10.
#[test]
fn whatever_is_done_to_the_file_of_the_index_it_answers() {
    let world = SessionFixture::new();
    world.run();
    list(&world);
    let whole = fs::read(file(&world)).unwrap();
    for cut in (0..whole.len()).step_by(3001) {
        fs::write(file(&world), &whole[..cut]).unwrap();
        assert_eq!(list(&world).len(), 1, "{cut}");
    }
    for page in 0..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..4096].fill(0xa5);
        fs::write(file(&world), damaged).unwrap();
        let mut index = open(&world);
        index.list().unwrap();
        index.search("do", 10).unwrap();
        index.costs().unwrap();
    }
}

/// Fault S10.
#[test]
fn an_index_that_can_t_be_used_is_done_without() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    let rows = list(&world);
    world.resume(session, Some("further"));
    let holder = rusqlite::Connection::open(file(&world)).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(list(&world)[0].llm_calls, rows[0].llm_calls + 1);
    drop(holder);
    assert_eq!(list(&world).len(), 1);
    fs::remove_file(file(&world)).unwrap();
    fs::create_dir(file(&world)).unwrap();
    assert_eq!(list(&world)[0].records, list(&world)[0].records);
    assert_eq!(found(&world, "further").len(), 1);
}
