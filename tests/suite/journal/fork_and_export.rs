//! Forks, exports and imports.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use architect::journal::{
    Ancestry, ForkOptions, JournalEndKind, JournalError, ReplacementResult, SessionId,
    StoredContent,
};
use architect::machine::{Event, State, StopReason};
use architect::net::Secrets;
use architect::types::{ConversationItem, MessageOrigin, ToolStatus};

use super::fixture::SessionFixture;

fn fork(after: Option<u64>) -> ForkOptions {
    ForkOptions { after, replacement: None, lane: None, workspace: None, now: SystemTime::now() }
}

/// Returns the sequence numbers of the records with this name.
fn places(fixture: &SessionFixture, session: SessionId, name: &str) -> Vec<u64> {
    let mut places = Vec::new();
    let replayed = fixture.store.replay(session, |_, stored, _| {
        if stored.content.name() == name {
            places.push(stored.seq);
        }
    });
    replayed.unwrap();
    places
}

#[test]
fn a_fork_at_any_record_runs_to_the_end_and_leaves_the_original_unchanged() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let whole = fs::read(fixture.journal(session)).unwrap();
    let last = fixture.store.load(session).unwrap().1.position.seq - 1;
    for after in 0..=last {
        let child = fixture.store.fork(session, &fork(Some(after))).unwrap();
        let (past, end) = fixture
            .store
            .replay(child, |_, _, replayed| {
                assert_eq!(replayed.divergence, None);
            })
            .unwrap();
        assert_eq!((end.kind, end.position.seq), (JournalEndKind::Whole, after + 1));
        let lineage =
            Ancestry { session, seq: after, replaced: None, has_own_files: false, is_lane: false };
        assert_eq!(past.header.ancestry, Some(lineage));
        let machine = fixture.resume(child, Some("otherwise"));
        let State::Done(done) = &machine.state else { panic!() };
        assert_eq!(done.outcome.reason, StopReason::LlmDone);
        let new = ConversationItem::user(MessageOrigin::Task, "otherwise");
        assert!(machine.conversation.entries().iter().any(|entry| entry.item == new));
        fixture.store.remove(child).unwrap();
    }
    assert_eq!(fs::read(fixture.journal(session)).unwrap(), whole);
}

#[test]
fn a_fork_can_have_another_model_and_another_tool_result() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let settled = places(&fixture, session, "settled")[0];
    let instead = ReplacementResult { status: ToolStatus::Failed, text: "disk on fire".into() };
    let how = ForkOptions { replacement: Some(instead), ..fork(Some(settled)) };
    let child = fixture.store.fork(session, &how).unwrap();
    let mut how = fixture.resume_options(None);
    how.setup.model = "scripted/another".into();
    let opened = fixture.reopen(child);
    let at = opened.history.at;
    let going = opened.resume(how).unwrap();
    let machine = fixture.drive(going.journal, going.machine, going.output, at);
    let results = machine.conversation.entries().iter().find_map(|entry| match &entry.item {
        ConversationItem::Exchange(exchange) => Some(exchange.results()[0].clone()),
        _ => None,
    });
    let result = results.unwrap();
    assert_eq!((result.status, &*result.text), (ToolStatus::Failed, "disk on fire"));
    let past = fixture.history(child);
    assert_eq!(&*past.setup.model, "scripted/another");
    assert_eq!(past.header.ancestry.unwrap().replaced, Some(settled));
}

#[test]
fn an_impossible_fork_is_an_error() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let error = fixture.store.fork(session, &fork(Some(999))).unwrap_err().to_string();
    assert!(error.starts_with(&format!("session {session} has no record 999")), "{error}");
    let instead = Some(ReplacementResult { status: ToolStatus::Ok, text: "no".into() });
    let error = fixture
        .store
        .fork(session, &ForkOptions { replacement: instead, ..fork(Some(1)) })
        .unwrap_err();
    assert!(matches!(error, JournalError::NotAToolResult { seq: 1, .. }), "{error}");
    assert_eq!(fixture.store.list().unwrap().len(), 1);
}

#[test]
fn a_running_session_can_be_forked() {
    let fixture = SessionFixture::new();
    let (journal, _, _) = fixture.begin();
    let child = fixture.store.fork(journal.session(), &fork(None)).unwrap();
    assert_eq!(fixture.history(child).machine, fixture.history(journal.session()).machine);
}

/// A session with a tool result that is stored separately, and a longer complete output.
fn with_long_texts(fixture: &SessionFixture) -> SessionId {
    fs::write(fixture.workspace().join("a.txt"), "x".repeat(200_000)).unwrap();
    let (session, _) = fixture.run();
    let seq = places(fixture, session, "settled")[0];
    let instead = ReplacementResult { status: ToolStatus::Ok, text: "long ".repeat(40_000).into() };
    let how = ForkOptions { replacement: Some(instead), ..fork(Some(seq)) };
    let child = fixture.store.fork(session, &how).unwrap();
    fixture.store.outputs(child).store(&"c1".into(), "longer still").unwrap();
    fixture.store.remove(session).unwrap();
    child
}

#[test]
fn long_texts_and_outputs_go_along_with_a_fork() {
    let fixture = SessionFixture::new();
    let parent = with_long_texts(&fixture);
    assert!(fs::metadata(fixture.journal(parent)).unwrap().len() < 20_000);
    let child = fixture.store.fork(parent, &fork(None)).unwrap();
    let machine = fixture.history(parent).machine;
    fixture.store.remove(parent).unwrap();
    assert_eq!(fixture.history(child).machine, machine);
    let page = fixture.store.outputs(child).page(&"c1".into(), 1, 10).unwrap().unwrap();
    assert_eq!(page.text, "longer still");
}

#[test]
fn an_export_is_complete_and_can_be_imported_into_another_store() {
    let fixture = SessionFixture::new();
    let session = with_long_texts(&fixture);
    let file = fixture.root.join("exported.jsonl");
    let records = fixture
        .store
        .export(session, &Secrets::default(), &mut fs::File::create(&file).unwrap())
        .unwrap();
    assert!(fs::read_to_string(&file).unwrap().contains("long long long"));
    let other = SessionFixture::new();
    let imported = other.store.import(&file, Path::new("/"), SystemTime::now()).unwrap();
    assert_eq!(
        (imported.session, imported.records, imported.had_partial_record),
        (session, records, false)
    );
    assert_eq!(other.history(session).machine, fixture.history(session).machine);
    let again = other.store.import(&file, Path::new("/"), SystemTime::now()).unwrap();
    assert_ne!(again.session, session);
    let lineage = other.history(again.session).header.ancestry.unwrap();
    assert_eq!((lineage.session, lineage.seq), (session, records - 1));
    assert_eq!(other.history(again.session).machine, fixture.history(session).machine);
}

/// Fault X13.
#[test]
fn an_invalid_export_is_rejected_and_leaves_nothing_behind() {
    let fixture = SessionFixture::new();
    let session = with_long_texts(&fixture);
    let file = fixture.root.join("file.jsonl");
    let other = SessionFixture::new();
    let import = |text: &[u8]| {
        fs::write(&file, text).unwrap();
        other.store.import(&file, Path::new("/"), SystemTime::now())
    };
    // A raw journal refers to texts that only its own store has.
    let raw = fs::read(fixture.journal(session)).unwrap();
    assert!(import(&raw).is_ok_and(|imported| imported.had_partial_record));
    other.store.remove(session).unwrap();
    for text in [&b""[..], b"hello\n", b"{\"role\":\"user\"}\n", &raw[1..], &raw[..100]] {
        let error = import(text).unwrap_err();
        assert!(matches!(error, JournalError::NotAnExport { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(other.root.join("state/sessions")).unwrap().count(), 0);
}

#[test]
fn a_truncated_export_is_resumed_from_its_valid_part() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let mut exported = Vec::new();
    fixture.store.export(session, &Secrets::default(), &mut exported).unwrap();
    let authorized = places(&fixture, session, "vetted")[1];
    let text = String::from_utf8(exported).unwrap();
    let kept: Vec<&str> = text.lines().take(usize::try_from(authorized).unwrap() + 1).collect();
    let file = fixture.root.join("file.jsonl");
    fs::write(&file, kept.join("\n") + "\n{\"seq\":").unwrap();
    fixture.store.remove(session).unwrap();
    assert!(
        fixture.store.import(&file, Path::new("/"), SystemTime::now()).unwrap().had_partial_record
    );
    let State::Executing(_) = fixture.history(session).machine.state else { panic!() };
    let mut answered = false;
    fixture.resume(session, None);
    let replayed = fixture.store.replay(session, |_, stored, _| {
        answered |= matches!(&stored.content, StoredContent::Resumed(resumed)
            if resumed.resumption.recovered[0].result.status == ToolStatus::InDoubt);
        assert!(!matches!(&stored.content, StoredContent::Event(Event::InternalError { .. })));
    });
    assert_eq!(replayed.unwrap().1.kind, JournalEndKind::Whole);
    assert!(answered);
}
