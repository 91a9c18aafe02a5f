//! Several processes create a session with the same id: one succeeds, and none of its files are replaced.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::SystemTime;

use architect::journal::{
    Durability, FileJournal, JournalEndKind, JournalError, SessionHeader, SessionId, SessionSetup,
    SessionStore, WorkspaceIdentity,
};
use architect::net::Secrets;
use architect::types::{ConversationItem, MessageOrigin, RunRules};
use serde_json::Value;

use super::fixture::SessionFixture;

/// A task so long that it is stored in a file beside the journal.
fn long(name: usize) -> String {
    format!("{name} {}", "x".repeat(70_000))
}

fn begin(session: SessionId, fixture: &SessionFixture, task: &str) -> SessionHeader {
    let setup = SessionSetup {
        model: "scripted/world".into(),
        agent: "build".into(),
        workspace: WorkspaceIdentity::inspect(&fixture.workspace()).unwrap(),
        system: "".into(),
        tools: [].into(),
        schema: None,
        requests: Value::Null,
        options: Value::Null,
    };
    let task = ConversationItem::user(MessageOrigin::Task, task);
    SessionHeader::new(session, SystemTime::now(), setup, RunRules::default(), task)
}

/// Starts several at the same moment, each with a store of its own, as processes have.
fn run_at_once<T: Send>(
    fixture: &SessionFixture,
    act: impl Fn(usize, &SessionStore) -> T + Sync,
) -> Vec<T> {
    const MANY: usize = 8;
    let barrier = Barrier::new(MANY);
    thread::scope(|scope| {
        let one = |index| {
            let (act, barrier, root) = (&act, &barrier, fixture.root.join("state"));
            scope.spawn(move || {
                let store = SessionStore::open(&root, Durability::Os).unwrap();
                barrier.wait();
                act(index, &store)
            })
        };
        let all: Vec<_> = (0..MANY).map(one).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn task(fixture: &SessionFixture, session: SessionId) -> String {
    let (past, end) = fixture.store.load(session).unwrap();
    assert_eq!(end.kind, JournalEndKind::Whole);
    let ConversationItem::User(message) = &past.header.task else { panic!("a task is a message") };
    message.text.to_string()
}

#[test]
fn of_several_that_begin_one_session_one_does() {
    let fixture = SessionFixture::new();
    for round in 0..100 {
        let session = SessionId::generate();
        let begun = run_at_once(&fixture, |index, store| -> Result<FileJournal, JournalError> {
            store.create(&begin(session, &fixture, &long(index)))
        });
        let won: Vec<usize> = (0..begun.len()).filter(|index| begun[*index].is_ok()).collect();
        let [won] = won[..] else { panic!("round {round}: {won:?} have begun it") };
        for error in begun.iter().filter_map(|begun| begun.as_ref().err()) {
            assert!(
                matches!(error, JournalError::SessionExists(_) | JournalError::Busy { .. }),
                "{error}"
            );
        }
        assert_eq!(task(&fixture, session), long(won), "round {round}");
    }
    no_beginnings(&fixture);
}

/// A taken id does not prevent an import, which then gets another one.
#[test]
fn of_several_that_import_one_session_each_gets_a_whole_one_of_its_own() {
    let fixture = SessionFixture::new();
    let had = SessionId::generate();
    drop(fixture.store.create(&begin(had, &fixture, &long(0))).unwrap());
    let export = fixture.root.join("export.jsonl");
    fixture
        .store
        .export(had, &Secrets::default(), &mut fs::File::create(&export).unwrap())
        .unwrap();
    for round in 0..20 {
        fixture.store.remove(had).unwrap();
        let imported = run_at_once(&fixture, |_, store| {
            store.import(&export, Path::new("/"), SystemTime::now())
        });
        let mut ids: Vec<_> = imported.into_iter().map(|done| done.unwrap().session).collect();
        assert_eq!(ids.iter().filter(|id| **id == had).count(), 1, "round {round}");
        ids.iter().for_each(|id| assert_eq!(task(&fixture, *id), long(0)));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 8, "round {round}");
    }
    no_beginnings(&fixture);
}

#[test]
fn of_those_that_begin_a_session_and_import_it_neither_harms_the_other() {
    let fixture = SessionFixture::new();
    let had = SessionId::generate();
    drop(fixture.store.create(&begin(had, &fixture, &long(100))).unwrap());
    let export = fixture.root.join("export.jsonl");
    fixture
        .store
        .export(had, &Secrets::default(), &mut fs::File::create(&export).unwrap())
        .unwrap();
    for round in 0..30 {
        fixture.store.remove(had).unwrap();
        let has_it = run_at_once(&fixture, |index, store| {
            if index % 2 == 0 {
                return store
                    .create(&begin(had, &fixture, &long(index)))
                    .is_ok()
                    .then(|| long(index));
            }
            let imported = store.import(&export, Path::new("/"), SystemTime::now()).unwrap();
            (imported.session == had).then(|| long(100))
        });
        let won: Vec<String> = has_it.into_iter().flatten().collect();
        assert_eq!(won, [task(&fixture, had)], "round {round}");
    }
}

/// A process that loses leaves nothing in the folder of the sessions.
fn no_beginnings(fixture: &SessionFixture) {
    let entries = fs::read_dir(fixture.root.join("state/sessions")).unwrap();
    for entry in entries.flatten() {
        assert!(
            !entry.file_name().to_string_lossy().starts_with('.'),
            "{}",
            entry.path().display()
        );
    }
}
