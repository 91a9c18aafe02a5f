//! The index across sessions: its answers, its updates, and harmless handling of any file content.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use architect::journal::index::{
    IndexUpdate, MessageRole, SearchHit, SessionDetail, SessionRow, SessionStatus,
};
use architect::journal::{ForkOptions, SessionIndex};
use architect::types::{FileAction, MicroUsd, Tokens};
use serde_json::json;

use super::fixture::SessionFixture;

fn file(fixture: &SessionFixture) -> PathBuf {
    fixture.root.join("state/index.db")
}

fn open(fixture: &SessionFixture) -> SessionIndex {
    SessionIndex::open(&fixture.store).unwrap()
}

fn list(fixture: &SessionFixture) -> Vec<SessionRow> {
    open(fixture).list().unwrap()
}

fn found(fixture: &SessionFixture, text: &str) -> Vec<(MessageRole, Option<String>)> {
    let hits = open(fixture).search(text, 100).unwrap();
    hits.into_iter().map(|hit| (hit.role, hit.name)).collect()
}

#[test]
fn a_session_is_listed_with_its_result() {
    let fixture = SessionFixture::new();
    let (session, machine) = fixture.run();
    let row = &list(&fixture)[0];
    let run = machine.state.run();
    assert_eq!((row.session_id, row.status), (session, SessionStatus::Success));
    assert_eq!(row.stop_reason.as_deref(), Some("llm_done"));
    assert_eq!((row.steps, row.llm_calls, row.tokens), (3, 4, Tokens(440)));
    assert_eq!(row.cost, Some(run.used.cost));
    assert_eq!(row.model.as_deref(), Some("scripted/world"));
    assert_eq!(row.workspace.as_deref(), fs::canonicalize(fixture.workspace()).unwrap().to_str());
    assert_eq!(row.prompt.as_deref(), Some("do it"));
    assert_eq!(row.bytes, fs::metadata(fixture.journal(session)).unwrap().len());
    let json = serde_json::to_value(row).unwrap();
    assert_eq!((&json["status"], &json["cost"]), (&json!("success"), &json!(0.0008)));
}

#[test]
fn the_most_recently_written_session_comes_first() {
    let fixture = SessionFixture::new();
    let (first, second) = (fixture.run().0, fixture.run().0);
    let order = || list(&fixture).iter().map(|row| row.session_id).collect::<Vec<_>>();
    let touch = |session, seconds| {
        let file = fs::File::options().append(true).open(fixture.journal(session)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    touch(first, 1);
    touch(second, 2);
    assert_eq!(order(), [second, first]);
    touch(first, 3);
    assert_eq!(order(), [first, second]);
}

#[test]
fn a_running_session_differs_from_one_whose_process_is_gone() {
    let fixture = SessionFixture::new();
    let (journal, _, _) = fixture.begin();
    assert_eq!(list(&fixture)[0].status, SessionStatus::Running);
    drop(journal);
    assert_eq!(list(&fixture)[0].status, SessionStatus::Unfinished);
}

#[test]
fn only_changed_journals_are_read_again() {
    let fixture = SessionFixture::new();
    let (first, second) = (fixture.run().0, fixture.run().0);
    let mut index = open(&fixture);
    assert_eq!(index.update().unwrap(), IndexUpdate { unchanged: 2, ..IndexUpdate::default() });
    fixture.resume(first, Some("further"));
    let updated = IndexUpdate { read: 1, unchanged: 1, ..IndexUpdate::default() };
    assert_eq!(index.update().unwrap(), updated);
    fixture.store.remove(second).unwrap();
    let updated = IndexUpdate { unchanged: 1, removed: 1, ..IndexUpdate::default() };
    assert_eq!(index.update().unwrap(), updated);
    assert_eq!(list(&fixture).len(), 1);
}

#[test]
fn every_message_is_found_with_its_role() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let result = Some("task".to_owned());
    assert_eq!(found(&fixture, "do it"), [(MessageRole::User, result)]);
    assert_eq!(found(&fixture, "DONE"), [(MessageRole::Assistant, None)]);
    assert_eq!(found(&fixture, "\"echo ran\""), [(MessageRole::ToolCall, Some("run".into()))]);
    assert_eq!(found(&fixture, "writ*").len(), 2);
    assert_eq!(found(&fixture, "written first"), []);
    assert_eq!(found(&fixture, "nowhere"), []);
    fixture.resume(session, Some("do something else"));
    assert_eq!(found(&fixture, "\"do it\"").len(), 1);
    assert_eq!(found(&fixture, "something else").len(), 1);
    fixture.store.remove(session).unwrap();
    assert_eq!(found(&fixture, "do"), []);
}

#[test]
fn a_match_is_shown_with_its_surroundings() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let hits = open(&fixture).search("echo", 1).unwrap();
    let [SearchHit { session_id, snippet, prompt, .. }] = &hits[..] else { panic!("{hits:?}") };
    assert_eq!((*session_id, prompt.as_deref()), (session, Some("do it")));
    assert_eq!(snippet, r#"{"command":"echo ran >> ran.log"}"#);
}

#[test]
fn a_session_is_shown_with_its_messages_calls_and_files() {
    let fixture = SessionFixture::new();
    let (session, machine) = fixture.run();
    let detail = SessionDetail::load(&fixture.store, session).unwrap();
    let roles: Vec<MessageRole> = detail.messages.iter().map(|message| message.role).collect();
    let (call, result, text) =
        (MessageRole::ToolCall, MessageRole::ToolResult, MessageRole::Assistant);
    let expected =
        [MessageRole::User, text, call, result, call, result, call, call, result, result, text];
    assert_eq!(roles, expected);
    let cost: u64 = detail.calls.iter().map(|call| call.cost.unwrap().0).sum();
    assert_eq!((detail.calls.len(), MicroUsd(cost)), (4, machine.state.run().used.cost));
    let files: Vec<_> = detail.files.iter().map(|file| (file.path.clone(), file.action)).collect();
    assert_eq!(files, ["a.txt", "b.txt"].map(|path| (path.into(), FileAction::Created)));
    let json = serde_json::to_value(&detail).unwrap();
    assert_eq!(json["session_id"], json!(session.to_string()));
    assert_eq!(json["messages"][2]["role"], json!("tool_call"));
}

#[test]
fn costs_are_summed_over_sessions() {
    let fixture = SessionFixture::new();
    let spent = [fixture.run().1, fixture.run().1].map(|machine| machine.state.run().used.cost.0);
    let costs = open(&fixture).costs().unwrap();
    assert_eq!(costs.iter().map(|row| row.llm_calls).sum::<u64>(), 8);
    assert_eq!(costs.iter().map(|row| row.cost.unwrap().0).sum::<u64>(), spent.iter().sum::<u64>());
    assert!(costs.iter().all(|row| row.purpose == "agent" && row.model == "scripted/world"));
}

#[test]
fn copied_calls_of_a_fork_are_not_charged_twice() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let before = open(&fixture).costs().unwrap();
    let fork = ForkOptions {
        after: None,
        replacement: None,
        lane: None,
        workspace: None,
        now: SystemTime::now(),
    };
    fixture.store.fork(session, &fork).unwrap();
    assert_eq!(open(&fixture).costs().unwrap(), before);
}

#[test]
fn an_unreadable_journal_is_listed_with_its_problem() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    fs::write(fixture.journal(session), "no journal\n").unwrap();
    let row = &list(&fixture)[0];
    assert_eq!(row.status, SessionStatus::Unreadable);
    assert!(row.problem.as_deref().unwrap().contains("can only be read"), "{:?}", row.problem);
    assert_eq!(SessionDetail::load(&fixture.store, session).unwrap().messages, []);
}

#[test]
fn old_sessions_go_but_never_one_that_runs() {
    let fixture = SessionFixture::new();
    let (old, _) = fixture.run();
    let (running, _, _) = fixture.begin();
    let later = SystemTime::now() + Duration::from_secs(60);
    let mut index = open(&fixture);
    assert_eq!(index.clean_up(later).unwrap(), [old]);
    assert_eq!(index.list().unwrap()[0].session_id, running.session());
    assert!(index.remove(running.session()).is_err());
    assert_eq!(index.list().unwrap().len(), 1);
}

/// Fault S7.
#[test]
fn only_the_user_can_read_the_index() {
    let fixture = SessionFixture::new();
    fixture.run();
    list(&fixture);
    let mode = fs::metadata(file(&fixture)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Fault S10.
#[test]
fn an_index_that_is_invalid_or_of_another_version_is_built_again() {
    let fixture = SessionFixture::new();
    fixture.run();
    let rows = list(&fixture);
    let whole = fs::read(file(&fixture)).unwrap();
    let foreign = fixture.root.join("foreign.db");
    let database = rusqlite::Connection::open(&foreign).unwrap();
    database.execute_batch("CREATE TABLE sessions (id TEXT); PRAGMA user_version = 1").unwrap();
    let newer = fixture.root.join("newer.db");
    fs::write(&newer, &whole).unwrap();
    let database = rusqlite::Connection::open(&newer).unwrap();
    database.execute_batch("PRAGMA user_version = 99").unwrap();
    let contents =
        [b"no database".repeat(1000), vec![], fs::read(foreign).unwrap(), fs::read(newer).unwrap()];
    for content in contents {
        fs::write(file(&fixture), content).unwrap();
        assert_eq!(list(&fixture), rows);
        // The index was not answered from memory: the next process finds it complete.
        let updated = open(&fixture).update().unwrap();
        assert_eq!(updated, IndexUpdate { unchanged: 1, ..IndexUpdate::default() });
    }
}

/// Fault S10.
#[test]
fn whatever_is_done_to_the_file_of_the_index_it_answers() {
    let fixture = SessionFixture::new();
    fixture.run();
    list(&fixture);
    let whole = fs::read(file(&fixture)).unwrap();
    for cut in (0..whole.len()).step_by(3001) {
        fs::write(file(&fixture), &whole[..cut]).unwrap();
        assert_eq!(list(&fixture).len(), 1, "{cut}");
    }
    for page in 0..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..4096].fill(0xa5);
        fs::write(file(&fixture), damaged).unwrap();
        let mut index = open(&fixture);
        index.list().unwrap();
        index.search("do", 10).unwrap();
        index.costs().unwrap();
    }
}

/// Fault S10.
#[test]
fn an_unusable_index_is_replaced_by_one_in_memory() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let rows = list(&fixture);
    fixture.resume(session, Some("further"));
    let holder = rusqlite::Connection::open(file(&fixture)).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(list(&fixture)[0].llm_calls, rows[0].llm_calls + 1);
    drop(holder);
    assert_eq!(list(&fixture).len(), 1);
    fs::remove_file(file(&fixture)).unwrap();
    fs::create_dir(file(&fixture)).unwrap();
    assert_eq!(list(&fixture)[0].records, list(&fixture)[0].records);
    assert_eq!(found(&fixture, "further").len(), 1);
    fs::remove_dir(file(&fixture)).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, file(&fixture), rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(list(&fixture).len(), 1, "a named pipe blocks nothing");
    fs::remove_file(file(&fixture)).unwrap();
    std::os::unix::fs::symlink("elsewhere", file(&fixture)).unwrap();
    assert_eq!(list(&fixture).len(), 1);
    assert!(!file(&fixture).with_file_name("elsewhere").exists());
}
