//! The store: exclusive writing, resolution of names, and removal.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use architect::journal::{
    DamagePolicy, Durability, JournalError, MessageKind, QueuedMessage, SessionId, SessionStore,
    default_root,
};
use architect::machine::{Event, Fingerprint};
use architect::port::{Journal, JournalRecord};
use architect::types::{RunTime, Signal};

use super::fixture::SessionFixture;

fn steering(text: &str) -> QueuedMessage {
    QueuedMessage::new(MessageKind::Steering, text)
}

/// Fault S8.
#[test]
fn a_second_process_is_rejected_with_the_id_of_the_first() {
    let fixture = SessionFixture::new();
    let (journal, _, _) = fixture.begin();
    let session = journal.session();
    let error = fixture.store.reopen(session, DamagePolicy::Refuse).unwrap_err().to_string();
    let pid = std::process::id();
    assert_eq!(error, format!("session {session} is busy: process {pid} runs it"));
    assert!(matches!(fixture.store.remove(session), Err(JournalError::Busy { .. })));
    assert_eq!(fixture.history(session).header.session, session);
    drop(journal);
    assert!(fixture.store.reopen(session, DamagePolicy::Refuse).is_ok());
}

/// Fault S1: a process that is killed while it creates a session leaves a temporary file and a folder without a
/// journal. They are not listed, and removed later.
#[test]
fn leftovers_without_a_session_are_cleaned_up() {
    let fixture = SessionFixture::new();
    let session = fixture.begin().0.session();
    let sessions = fixture.root.join("state/sessions");
    let unknown = SessionId::generate();
    fs::create_dir(sessions.join(unknown.to_string())).unwrap();
    fs::write(sessions.join(format!(".{unknown}")), "half a header").unwrap();
    fs::write(sessions.join("note"), "another program's").unwrap();
    let names = || {
        let names = fs::read_dir(&sessions).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<std::collections::BTreeSet<_>>()
    };
    let all = names();
    assert_eq!(fixture.store.clean_up(SystemTime::UNIX_EPOCH).unwrap(), []);
    assert_eq!(names(), all);
    assert_eq!(fixture.store.clean_up(SystemTime::now()).unwrap(), [session]);
    assert_eq!(names(), ["note".to_owned()].into());
}

#[test]
fn only_a_running_session_takes_messages() {
    let fixture = SessionFixture::new();
    let (journal, _, _) = fixture.begin();
    let session = journal.session();
    assert!(fixture.store.is_running(session).unwrap());
    fixture.store.send(session, &steering("left")).unwrap();
    drop(journal);
    assert!(!fixture.store.is_running(session).unwrap());
    let error = fixture.store.send(session, &steering("left")).unwrap_err().to_string();
    assert_eq!(error, format!("session {session} is not running"));
    let unknown = SessionId::generate();
    assert!(matches!(
        fixture.store.send(unknown, &steering("left")),
        Err(JournalError::UnknownSession(_))
    ));
}

#[test]
fn a_name_is_an_id_a_prefix_or_last() {
    let fixture = SessionFixture::new();
    let resolve = |name: &str| fixture.store.resolve(name);
    assert!(matches!(resolve("last"), Err(JournalError::UnknownSession(_))));
    let first = fixture.begin().0.session();
    std::thread::sleep(Duration::from_millis(20));
    let second = fixture.begin().0.session();
    assert_eq!(resolve(&first.to_string()).unwrap(), first);
    assert_eq!(resolve(&first.to_string()[..14]).unwrap(), first);
    assert_eq!(resolve("last").unwrap(), second);
    let error = resolve("0").unwrap_err().to_string();
    assert_eq!(error, format!("'0' matches 2 sessions: {first}, {second}"));
    for name in ["", ".", "..", "../sessions", "x", "%", "*", "fff", "Last"] {
        assert!(matches!(resolve(name), Err(JournalError::UnknownSession(_))), "{name}");
    }
}

#[test]
fn files_and_folders_are_the_users_alone() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(fixture.root.join("state")), 0o700);
    assert_eq!(mode(fixture.root.join("state/sessions")), 0o700);
    assert_eq!(mode(fixture.session_folder(session)), 0o700);
    assert_eq!(mode(fixture.journal(session)), 0o600);
}

/// Fault S7.
#[test]
fn a_store_behind_a_link_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("real")).unwrap();
    symlink(temp.path().join("real"), temp.path().join("state")).unwrap();
    let opened = SessionStore::open(&temp.path().join("state"), Durability::Os);
    assert!(opened.unwrap_err().to_string().ends_with("state is a symbolic link"));
}

#[test]
fn a_journal_behind_a_link_is_refused() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let elsewhere = fixture.root.join("elsewhere.jsonl");
    fs::rename(fixture.journal(session), &elsewhere).unwrap();
    symlink(&elsewhere, fixture.journal(session)).unwrap();
    assert!(fixture.store.reopen(session, DamagePolicy::Refuse).is_err());
}

/// Fault S6.
#[test]
fn a_store_that_cannot_be_created_reports_its_path() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("file"), "").unwrap();
    let error = SessionStore::open(&temp.path().join("file/state"), Durability::Os).unwrap_err();
    assert!(error.to_string().starts_with("could not create the folder /"), "{error}");
}

/// Fault K11.
#[test]
fn the_environment_determines_the_state_folder() {
    let root = |state: Option<&str>, home: Option<&str>| {
        default_root(|name| match name {
            "XDG_STATE_HOME" => state.map(Into::into),
            "HOME" => home.map(Into::into),
            _ => None,
        })
    };
    assert_eq!(root(Some("/s"), Some("/h")).unwrap(), PathBuf::from("/s/architect"));
    let home = PathBuf::from("/h/.local/state/architect");
    assert_eq!(root(None, Some("/h")).unwrap(), home);
    assert_eq!(root(Some("relative"), Some("/h")).unwrap(), home);
    assert!(root(Some(""), None).is_err());
}

/// Fault S22.
#[test]
fn a_journal_that_is_deleted_while_its_session_runs_takes_no_more_records() {
    let fixture = SessionFixture::new();
    let (mut journal, machine, output) = fixture.begin();
    let met = Fingerprint::of(&machine, &output.effects);
    let event = Event::Interrupt { signal: Signal::Interrupt };
    let record = JournalRecord::Event { event: &event, fingerprint: met, timing: None };
    journal.append(RunTime(1), record).unwrap();
    fs::remove_file(fixture.journal(journal.session())).unwrap();
    let error = journal.append(RunTime(2), record).unwrap_err().to_string();
    assert!(error.ends_with("it was deleted"), "{error}");
    assert!(journal.sync().is_err());
}

#[test]
fn a_session_is_removed_with_all_that_belongs_to_it() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    fixture.store.outputs(session).store(&"c1".into(), "all of it").unwrap();
    fixture.store.remove(session).unwrap();
    assert_eq!(fixture.store.list().unwrap(), []);
    assert_eq!(fs::read_dir(fixture.root.join("state/sessions")).unwrap().count(), 0);
    assert!(matches!(fixture.store.remove(session), Err(JournalError::UnknownSession(_))));
}

#[test]
fn old_sessions_are_cleaned_up_but_not_those_that_run() {
    let fixture = SessionFixture::new();
    let (old, _) = fixture.run();
    let (running, _, _) = fixture.begin();
    let later = SystemTime::now() + Duration::from_secs(60);
    let earlier = SystemTime::now() - Duration::from_secs(60);
    assert_eq!(fixture.store.clean_up(earlier).unwrap(), []);
    assert_eq!(fixture.store.clean_up(later).unwrap(), [old]);
    assert_eq!(fixture.store.list().unwrap()[0].session, running.session());
}
