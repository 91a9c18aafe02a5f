//! Resuming each kind of effect that was running when the process died.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use architect::journal::{ResumeOptions, SessionId, StoredContent};
use architect::machine::{
    CallPurpose, CloseReason, ConversationEntry, Machine, State, StateKind, StopReason,
};
use architect::port::Model;
use architect::types::{
    ContextLimits, ConversationItem, MessageOrigin, Reply, ReplyPart, RunLimits, RunRules, RunTime,
    Tokens, ToolStatus, Usage,
};

use crate::kit::model::{call, model};

use super::fixture::{Participants, SessionFixture, immediate, reply, rules};
use super::resume::{CrashingJournal, crash_at, reason, replay_and_verify, result};

/// The number of model calls for each purpose.
#[derive(Clone, Default)]
pub(super) struct RequestCounts {
    closing: Arc<AtomicU32>,
    compaction: Arc<AtomicU32>,
}

/// Returns a model that reads the same file five times, with requests that grow until they are summarized; its replies
/// depend on nothing but the conversation.
pub(super) fn reading_model(counts: &RequestCounts) -> Box<dyn Model> {
    let counts = counts.clone();
    model(move |request| {
        let text = |text: &str| vec![ReplyPart::Text(text.into())];
        let last = request.entries.iter().map(|entry| entry.id.0).max().unwrap_or(0);
        let parts = match request.purpose {
            CallPurpose::Compaction => {
                counts.compaction.fetch_add(1, Ordering::Relaxed);
                text("The note was read; it says n.")
            }
            CallPurpose::Closing => {
                counts.closing.fetch_add(1, Ordering::Relaxed);
                text("That was all.")
            }
            CallPurpose::Agent if last < 5 => {
                vec![call(&format!("r{last}"), "read", r#"{"path":"note"}"#)]
            }
            CallPurpose::Agent => text("It says n."),
        };
        let input = Tokens(400 * request.entries.len() as u64);
        let usage = Usage { input, output: Tokens(10), ..Usage::default() };
        immediate(Reply { usage, ..reply(parts) })
    })
}

/// Rules by which the fifth request of [`reading_model`] is too large.
pub(super) fn narrow() -> RunRules {
    let context = ContextLimits {
        window: Tokens(2_000),
        summarize_after: 2,
        keep_recent: 1,
        ..ContextLimits::default()
    };
    RunRules { context, ..rules() }
}

/// Rules by which a run closes after its second step.
pub(super) fn short() -> RunRules {
    RunRules { limits: RunLimits { max_steps: 2, ..RunLimits::default() }, ..rules() }
}

pub(super) fn fixture() -> SessionFixture {
    let fixture = SessionFixture::new();
    std::fs::write(fixture.workspace().join("note"), "n").unwrap();
    fixture
}

fn begin(fixture: &SessionFixture, rules: RunRules, records: usize) -> SessionId {
    let (journal, machine, output) = fixture.try_begin_by(rules).unwrap();
    let session = journal.session();
    let messages = Box::new(journal.queue());
    let journal = Box::new(CrashingJournal { journal, records });
    fixture.drive_with(
        Participants { journal, messages, model: reading_model(&RequestCounts::default()) },
        machine,
        output,
        RunTime::START,
    );
    session
}

/// Creates a session whose process dies in this state: after the event that led there, and before any event in it.
fn crash_in(fixture: &SessionFixture, rules: &RunRules, state: StateKind) -> SessionId {
    let reference = self::fixture();
    let session = begin(&reference, rules.clone(), usize::MAX);
    let mut at = None;
    let replayed = reference.store.replay(session, |_, stored, replayed| {
        if at.is_none() && replayed.fingerprint.state == state {
            at = Some(stored.seq);
        }
    });
    replayed.unwrap();
    // The header is not written through the journal that dies.
    let records = usize::try_from(at.expect("the run comes there")).unwrap() - 1;
    let session = begin(fixture, rules.clone(), records);
    assert_eq!(fixture.history(session).machine.state.kind(), state);
    session
}

/// Resumes a session of [`reading_model`], and counts the requests.
fn go_on(fixture: &SessionFixture, session: SessionId) -> (Machine, RequestCounts) {
    go_on_by(fixture, session, rules())
}

fn go_on_by(
    fixture: &SessionFixture,
    session: SessionId,
    rules: RunRules,
) -> (Machine, RequestCounts) {
    let opened = fixture.reopen(session);
    let at = opened.history.at;
    let going = opened.resume(ResumeOptions { rules, ..fixture.resume_options(None) }).unwrap();
    let asked = RequestCounts::default();
    let participants =
        Participants { model: reading_model(&asked), ..Participants::new(going.journal) };
    let machine = fixture.drive_with(participants, going.machine, going.output, at);
    replay_and_verify(fixture, session);
    (machine, asked)
}

fn summaries(machine: &Machine) -> usize {
    let is_summary = |entry: &&ConversationEntry| match &entry.item {
        ConversationItem::User(message) => message.origin == MessageOrigin::Summary,
        ConversationItem::Assistant(_) | ConversationItem::Exchange(_) => false,
    };
    machine.conversation.entries().iter().filter(is_summary).count()
}

#[test]
fn a_completed_tool_is_not_run_again() {
    let fixture = SessionFixture::new();
    let session = crash_at(&fixture, "settled", 1);
    assert_eq!(fixture.command_log(), ["ran"]);
    let machine = fixture.resume(session, None);
    assert_eq!(fixture.command_log(), ["ran"]);
    assert_eq!(result(&machine, "c2").status, ToolStatus::Ok);
}

/// Fault S16.
#[test]
fn a_tool_that_had_not_started_runs() {
    let fixture = SessionFixture::new();
    let session = crash_at(&fixture, "replied", 1);
    assert!(fixture.command_log().is_empty());
    let machine = fixture.resume(session, None);
    assert_eq!((fixture.command_log().len(), result(&machine, "c2").status), (1, ToolStatus::Ok));
}

#[test]
fn a_call_that_changes_nothing_runs_again() {
    let fixture = fixture();
    let session = crash_in(&fixture, &rules(), StateKind::Executing);
    let State::Executing(_) = fixture.history(session).machine.state else { panic!() };
    let (machine, _) = go_on(&fixture, session);
    assert_eq!(result(&machine, "r0").status, ToolStatus::Ok);
    assert_eq!(reason(&machine), Some(StopReason::LlmDone));
}

#[test]
fn a_request_that_was_sent_is_charged_and_sent_again() {
    let fixture = fixture();
    let session = crash_in(&fixture, &rules(), StateKind::CallingSending);
    let before = fixture.history(session).machine.state.run().used;
    let going = fixture.reopen(session).resume(fixture.resume_options(None)).unwrap();
    let after = going.machine.state.run().used;
    assert!(after.cost > before.cost && after.tokens > before.tokens, "{before:?} {after:?}");
    drop(going);
    let (machine, _) = go_on(&fixture, session);
    assert_eq!(reason(&machine), Some(StopReason::LlmDone));
}

/// Fault S17.
#[test]
fn an_interrupted_summary_is_requested_again_and_the_history_stays_until_it_is_complete() {
    let fixture = fixture();
    let session = crash_in(&fixture, &narrow(), StateKind::CompactingSending);
    let before = fixture.history(session).machine;
    assert_eq!(summaries(&before), 0);
    let going = fixture.reopen(session).resume(fixture.resume_options(None)).unwrap();
    assert_eq!(going.machine.conversation.entries(), before.conversation.entries());
    drop(going);
    let (machine, asked) = go_on(&fixture, session);
    assert_eq!((summaries(&machine), asked.compaction.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(reason(&machine), Some(StopReason::LlmDone));
}

/// Fault S17.
#[test]
fn a_requested_final_summary_is_not_requested_again() {
    let fixture = fixture();
    let session = crash_in(&fixture, &short(), StateKind::ClosingSending);
    let (machine, asked) = go_on(&fixture, session);
    assert_eq!(asked.closing.load(Ordering::Relaxed), 0);
    assert_eq!(reason(&machine), Some(StopReason::Closed(CloseReason::MaxSteps)));
}

/// Fault S17.
#[test]
fn an_unrequested_final_summary_is_requested() {
    let fixture = fixture();
    let session = crash_in(&fixture, &short(), StateKind::ClosingPreparing);
    let (machine, asked) = go_on_by(&fixture, session, short());
    assert_eq!(asked.closing.load(Ordering::Relaxed), 1);
    assert_eq!(reason(&machine), Some(StopReason::Closed(CloseReason::MaxSteps)));
}

/// Fault S17: the user allows more steps meanwhile.
#[test]
fn a_run_that_closed_for_its_steps_continues_with_more_of_them() {
    let fixture = fixture();
    let session = crash_in(&fixture, &short(), StateKind::ClosingPreparing);
    let (_, asked) = go_on(&fixture, session);
    assert_eq!(asked.closing.load(Ordering::Relaxed), 0);
}

/// Fault S20.
#[test]
fn a_clock_that_was_set_back_changes_only_displayed_times() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let mut how = fixture.resume_options(Some("and further"));
    how.now = std::time::UNIX_EPOCH;
    let opened = fixture.reopen(session);
    let at = opened.history.at;
    let going = opened.resume(how).unwrap();
    let machine = fixture.drive(going.journal, going.machine, going.output, at);
    assert_eq!(reason(&machine), Some(StopReason::LlmDone));
    let mut order = Vec::new();
    let mut times = Vec::new();
    let see = |stored: &architect::journal::StoredRecord| {
        order.push((stored.seq, stored.at));
        times.extend(stored.ts);
        assert!(!matches!(stored.content, StoredContent::Other));
    };
    let mut see = see;
    fixture.store.replay(session, |_, stored, _| see(stored)).unwrap();
    assert!(order.is_sorted() && !times.is_sorted(), "{times:?}");
    replay_and_verify(&fixture, session);
}
