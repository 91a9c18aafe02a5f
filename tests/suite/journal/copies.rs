//! Forks, exports and imports.

use std::fs;
use std::time::SystemTime;

use architect::journal::{Content, EndKind, Fork, Instead, JournalError, Lineage, SessionId};
use architect::machine::{Event, State, StopReason};
use architect::model::{Item, Origin, ToolStatus};

use super::world::World;

fn fork(after: Option<u64>) -> Fork {
    Fork { after, instead: None, now: SystemTime::now() }
}

/// Returns the places of the records that are called so.
fn places(world: &World, session: SessionId, name: &str) -> Vec<u64> {
    let mut places = Vec::new();
    let replayed = world.store.replay(session, |_, stored, _| {
        if stored.content.name() == name {
            places.push(stored.seq);
        }
    });
    replayed.unwrap();
    places
}

#[test]
fn a_fork_at_any_record_goes_on_to_the_end_and_leaves_its_original_alone() {
    let world = World::new();
    let (session, _) = world.run();
    let whole = fs::read(world.journal(session)).unwrap();
    let last = world.store.replay(session, |_, _, _| {}).unwrap().1.position.seq - 1;
    for after in 0..=last {
        let child = world.store.fork(session, &fork(Some(after))).unwrap();
        let (past, end) = world
            .store
            .replay(child, |_, _, replayed| {
                assert_eq!(replayed.difference, None);
            })
            .unwrap();
        assert_eq!((end.kind, end.position.seq), (EndKind::Whole, after + 1));
        let lineage = Lineage { session, seq: after, replaced: None };
        assert_eq!(past.header.lineage, Some(lineage));
        let fold = world.resume(child, Some("otherwise"));
        let State::Done(done) = &fold.state else { panic!() };
        assert_eq!(done.outcome.reason, StopReason::LlmDone);
        let new = Item::user(Origin::Task, "otherwise");
        assert!(fold.conversation.entries().iter().any(|entry| entry.item == new));
        world.store.remove(child).unwrap();
    }
    assert_eq!(fs::read(world.journal(session)).unwrap(), whole);
}

#[test]
fn a_fork_can_have_another_model_and_another_tool_result() {
    let world = World::new();
    let (session, _) = world.run();
    let settled = places(&world, session, "settled")[0];
    let instead = Instead { status: ToolStatus::Failed, text: "disk on fire".into() };
    let how = Fork { instead: Some(instead), ..fork(Some(settled)) };
    let child = world.store.fork(session, &how).unwrap();
    let mut how = world.how(None);
    how.setting.model = "scripted/another".into();
    let opened = world.reopen(child);
    let at = opened.past.at;
    let going = opened.go_on(how).unwrap();
    let fold = world.drive(going.journal, going.fold, going.outcomes, at);
    let results = fold.conversation.entries().iter().find_map(|entry| match &entry.item {
        Item::Exchange(exchange) => Some(exchange.results()[0].clone()),
        _ => None,
    });
    let result = results.unwrap();
    assert_eq!((result.status, &*result.text), (ToolStatus::Failed, "disk on fire"));
    let past = world.past(child);
    assert_eq!(&*past.setting.model, "scripted/another");
    assert_eq!(past.header.lineage.unwrap().replaced, Some(settled));
}

#[test]
fn what_cannot_be_forked_is_told() {
    let world = World::new();
    let (session, _) = world.run();
    let error = world.store.fork(session, &fork(Some(999))).unwrap_err().to_string();
    assert!(error.starts_with(&format!("session {session} has no record 999")), "{error}");
    let instead = Some(Instead { status: ToolStatus::Ok, text: "no".into() });
    let error = world.store.fork(session, &Fork { instead, ..fork(Some(1)) }).unwrap_err();
    assert!(matches!(error, JournalError::NoResult { seq: 1, .. }), "{error}");
    assert_eq!(world.store.list().unwrap().len(), 1);
}

#[test]
fn a_session_that_runs_can_be_forked() {
    let world = World::new();
    let (journal, _, _) = world.begin();
    let child = world.store.fork(journal.session(), &fork(None)).unwrap();
    assert_eq!(world.past(child).fold, world.past(journal.session()).fold);
}

/// A session in which a tool said more than goes into a line, and kept more than it said.
fn with_long_texts(world: &World) -> SessionId {
    fs::write(world.workspace().join("a.txt"), "x".repeat(200_000)).unwrap();
    let (session, _) = world.run();
    let seq = places(world, session, "settled")[0];
    let instead = Instead { status: ToolStatus::Ok, text: "long ".repeat(40_000).into() };
    let how = Fork { instead: Some(instead), ..fork(Some(seq)) };
    let child = world.store.fork(session, &how).unwrap();
    world.store.outputs(child).keep(&"c1".into(), "longer still").unwrap();
    world.store.remove(session).unwrap();
    child
}

#[test]
fn long_texts_and_outputs_go_along_with_a_fork() {
    let world = World::new();
    let parent = with_long_texts(&world);
    assert!(fs::metadata(world.journal(parent)).unwrap().len() < 20_000);
    let child = world.store.fork(parent, &fork(None)).unwrap();
    let fold = world.past(parent).fold;
    world.store.remove(parent).unwrap();
    assert_eq!(world.past(child).fold, fold);
    let page = world.store.outputs(child).page(&"c1".into(), 1, 10).unwrap().unwrap();
    assert_eq!(page.text, "longer still");
}

#[test]
fn an_export_has_everything_in_it_and_comes_back_in_another_store() {
    let world = World::new();
    let session = with_long_texts(&world);
    let file = world.root.join("exported.jsonl");
    let records = world.store.export(session, &mut fs::File::create(&file).unwrap()).unwrap();
    assert!(fs::read_to_string(&file).unwrap().contains("long long long"));
    let other = World::new();
    let imported = other.store.import(&file, SystemTime::now()).unwrap();
    assert_eq!((imported.session, imported.records, imported.torn), (session, records, false));
    assert_eq!(other.past(session).fold, world.past(session).fold);
    let again = other.store.import(&file, SystemTime::now()).unwrap();
    assert_ne!(again.session, session);
    let lineage = other.past(again.session).header.lineage.unwrap();
    assert_eq!((lineage.session, lineage.seq), (session, records - 1));
    assert_eq!(other.past(again.session).fold, world.past(session).fold);
}

/// Fault X13.
#[test]
fn what_is_no_export_is_not_imported_and_leaves_nothing_behind() {
    let world = World::new();
    let session = with_long_texts(&world);
    let file = world.root.join("file.jsonl");
    let other = World::new();
    let import = |text: &[u8]| {
        fs::write(&file, text).unwrap();
        other.store.import(&file, SystemTime::now())
    };
    // A journal as it is names texts that only its own store has.
    let raw = fs::read(world.journal(session)).unwrap();
    assert!(import(&raw).is_ok_and(|imported| imported.torn));
    other.store.remove(session).unwrap();
    for text in [&b""[..], b"hello\n", b"{\"role\":\"user\"}\n", &raw[1..], &raw[..100]] {
        let error = import(text).unwrap_err();
        assert!(matches!(error, JournalError::NotASession { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(other.root.join("state/sessions")).unwrap().count(), 0);
}

#[test]
fn an_export_that_was_cut_off_goes_on_from_what_is_left() {
    let world = World::new();
    let (session, _) = world.run();
    let mut exported = Vec::new();
    world.store.export(session, &mut exported).unwrap();
    let vetted = places(&world, session, "vetted")[1];
    let text = String::from_utf8(exported).unwrap();
    let kept: Vec<&str> = text.lines().take(usize::try_from(vetted).unwrap() + 1).collect();
    let file = world.root.join("file.jsonl");
    fs::write(&file, kept.join("\n") + "\n{\"seq\":").unwrap();
    world.store.remove(session).unwrap();
    assert!(world.store.import(&file, SystemTime::now()).unwrap().torn);
    let State::Executing(_) = world.past(session).fold.state else { panic!() };
    let mut answered = false;
    world.resume(session, None);
    let replayed = world.store.replay(session, |_, stored, _| {
        answered |= matches!(&stored.content, Content::Resumed(resumed)
            if resumed.resumption.found[0].result.status == ToolStatus::InDoubt);
        assert!(!matches!(&stored.content, Content::Event(Event::Defect { .. })));
    });
    assert_eq!(replayed.unwrap().1.kind, EndKind::Whole);
    assert!(answered);
}
