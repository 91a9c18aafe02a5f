//! A replayed journal ends in the state of the run.

use architect::journal::{JournalEndKind, StoredContent, StoredRecord};
use architect::machine::StateKind;

use super::fixture::SessionFixture;
use crate::kit::sealing::resealed;

#[test]
fn a_replay_ends_where_the_run_ended() {
    let fixture = SessionFixture::new();
    let (session, machine) = fixture.run();
    let mut differences = Vec::new();
    let replayed = fixture.store.replay(session, |_, _, replayed| {
        differences.extend(replayed.divergence.clone());
    });
    let (past, end) = replayed.unwrap();
    assert_eq!(differences, []);
    assert_eq!(end.kind, JournalEndKind::Whole);
    assert_eq!(past.machine, machine);
    assert_eq!(past.machine.state.kind(), StateKind::Done);
    let ended = past.ended.unwrap();
    assert_eq!((&*ended.reason, ended.steps, ended.model_calls), ("llm_done", 3, 4));
}

#[test]
fn every_record_is_replayed_in_its_state() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let mut met = Vec::new();
    let see = |stored: &StoredRecord| {
        let state = stored.fingerprint.as_ref().map_or("", |mark| &mark.state);
        format!("{} in {state}", stored.content.name())
    };
    fixture.store.replay(session, |_, stored, _| met.push(see(stored))).unwrap();
    // The calls of the third turn run in parallel.
    met.retain(|line| !line.contains("Executing"));
    assert_eq!(
        met,
        [
            "prepared in Preparing",
            "replied in Calling.Sending",
            "prepared in Preparing",
            "replied in Calling.Sending",
            "prepared in Preparing",
            "replied in Calling.Sending",
            "prepared in Preparing",
            "replied in Calling.Sending",
            "checked in Calling.Checking",
            "ended in Done",
        ]
    );
}

#[test]
fn a_divergence_is_reported_at_its_first_event() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let path = fixture.journal(session);
    let text = std::fs::read_to_string(&path).unwrap();
    // The tool results are the same, but the first reply cost more.
    let forged = text.replacen("\"input\":100", "\"input\":101", 1);
    std::fs::write(&path, resealed(&forged)).unwrap();
    let mut differences = Vec::new();
    let replayed = fixture.store.replay(session, |_, _, replayed| {
        differences.extend(replayed.divergence.clone());
    });
    assert_eq!(replayed.unwrap().1.kind, JournalEndKind::Whole);
    assert_eq!(
        differences[0].to_string(),
        "record 2 leads to another state in the replay: record 3 (vetted) was written in state Executing, but with other \
         usage or effects"
    );
}

#[test]
fn the_times_of_calls_and_syncs_are_recorded() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let mut calls = 0;
    let see = |stored: &StoredRecord| match &stored.content {
        StoredContent::Event(architect::machine::Event::Replied { .. }) => {
            calls += 1;
            assert!(stored.timing.unwrap().first_byte.is_some());
        }
        _ => assert_eq!(stored.timing, None),
    };
    let mut see = see;
    fixture.store.replay(session, |_, stored, _| see(stored)).unwrap();
    assert_eq!(calls, 4);
}
