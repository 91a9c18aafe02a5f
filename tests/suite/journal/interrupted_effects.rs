//! How each effect is resumed that was running when the process died.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use architect::journal::{SessionId, StoredContent};
use architect::machine::{
    CallPurpose, CloseReason, ConversationEntry, Machine, State, StateKind, StopReason,
};
use architect::model::{
    ContextLimits, ConversationItem, MessageOrigin, Reply, ReplyPart, RunLimits, RunRules, RunTime,
    Tokens, ToolStatus, Usage,
};
use architect::port::Model;

use crate::kit::model::{call, model};

use super::fixture::{Participants, SessionFixture, immediate, reply, rules};
use super::resume::{CrashingJournal, crash_at, reason, replay_and_verify, result};

/// How often a model was called for each purpose.
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

pub(super) fn world() -> SessionFixture {
    let world = SessionFixture::new();
    std::fs::write(world.workspace().join("note"), "n").unwrap();
    world
}

fn begin(world: &SessionFixture, rules: RunRules, records: usize) -> SessionId {
    let (journal, fold, outcomes) = world.try_begin_by(rules).unwrap();
    let session = journal.session();
    let mail = Box::new(journal.queue());
    let journal = Box::new(CrashingJournal { journal, records });
    world.drive_with(
        Participants { journal, mail, model: reading_model(&RequestCounts::default()) },
        fold,
        outcomes,
        RunTime::START,
    );
    session
}

/// Dies in this state: after the event that led there was written, and before any event in it.
fn crash_in(world: &SessionFixture, rules: &RunRules, state: StateKind) -> SessionId {
    let rehearsal = self::world();
    let session = begin(&rehearsal, rules.clone(), usize::MAX);
    let mut at = None;
    let replayed = rehearsal.store.replay(session, |_, stored, replayed| {
        if at.is_none() && replayed.fingerprint.state == state {
            at = Some(stored.seq);
        }
    });
    replayed.unwrap();
    // The header is not written through the journal that dies.
    let records = usize::try_from(at.expect("the run comes there")).unwrap() - 1;
    let session = begin(world, rules.clone(), records);
    assert_eq!(world.history(session).machine.state.kind(), state);
    session
}

/// Resumes a session of [`reading_model`], and counts the requests.
fn go_on(world: &SessionFixture, session: SessionId) -> (Machine, RequestCounts) {
    let opened = world.reopen(session);
    let at = opened.history.at;
    let going = opened.resume(world.resume_options(None)).unwrap();
    let asked = RequestCounts::default();
    let cast = Participants { model: reading_model(&asked), ..Participants::new(going.journal) };
    let fold = world.drive_with(cast, going.machine, going.output, at);
    replay_and_verify(world, session);
    (fold, asked)
}

fn summaries(fold: &Machine) -> usize {
    let is_summary = |entry: &&ConversationEntry| match &entry.item {
        ConversationItem::User(message) => message.origin == MessageOrigin::Summary,
        ConversationItem::Assistant(_) | ConversationItem::Exchange(_) => false,
    };
    fold.conversation.entries().iter().filter(is_summary).count()
}

#[test]
fn a_tool_that_was_over_is_not_run_again_and_its_answer_stands() {
    let world = SessionFixture::new();
    let session = crash_at(&world, "settled", 1);
    assert_eq!(world.command_log(), ["ran"]);
    let fold = world.resume(session, None);
    assert_eq!(world.command_log(), ["ran"]);
    assert_eq!(result(&fold, "c2").status, ToolStatus::Ok);
}

/// Fault S16.
#[test]
fn a_tool_that_had_not_begun_runs() {
    let world = SessionFixture::new();
    let session = crash_at(&world, "replied", 1);
    assert!(world.command_log().is_empty());
    let fold = world.resume(session, None);
    assert_eq!((world.command_log().len(), result(&fold, "c2").status), (1, ToolStatus::Ok));
}

#[test]
fn a_call_that_changes_nothing_runs_again() {
    let world = world();
    let session = crash_in(&world, &rules(), StateKind::Executing);
    let State::Executing(_) = world.history(session).machine.state else { panic!() };
    let (fold, _) = go_on(&world, session);
    assert_eq!(result(&fold, "r0").status, ToolStatus::Ok);
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
}

#[test]
fn a_request_that_was_sent_is_charged_and_sent_again() {
    let world = world();
    let session = crash_in(&world, &rules(), StateKind::CallingSending);
    let before = world.history(session).machine.state.run().used;
    let going = world.reopen(session).resume(world.resume_options(None)).unwrap();
    let after = going.machine.state.run().used;
    assert!(after.cost > before.cost && after.tokens > before.tokens, "{before:?} {after:?}");
    drop(going);
    let (fold, _) = go_on(&world, session);
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
}

/// Fault S17.
#[test]
fn a_summary_that_was_asked_for_is_asked_for_again_and_the_old_history_stands_until_it_is_there() {
    let world = world();
    let session = crash_in(&world, &narrow(), StateKind::CompactingSending);
    let before = world.history(session).machine;
    assert_eq!(summaries(&before), 0);
    let going = world.reopen(session).resume(world.resume_options(None)).unwrap();
    assert_eq!(going.machine.conversation.entries(), before.conversation.entries());
    drop(going);
    let (fold, asked) = go_on(&world, session);
    assert_eq!((summaries(&fold), asked.compaction.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
}

/// Fault S17.
#[test]
fn a_last_word_that_was_asked_for_is_not_asked_for_again() {
    let world = world();
    let session = crash_in(&world, &short(), StateKind::ClosingSending);
    let (fold, asked) = go_on(&world, session);
    assert_eq!(asked.closing.load(Ordering::Relaxed), 0);
    assert_eq!(reason(&fold), Some(StopReason::Closed(CloseReason::MaxSteps)));
}

/// Fault S17.
#[test]
fn a_last_word_that_was_not_yet_asked_for_is_asked_for() {
    let world = world();
    let session = crash_in(&world, &short(), StateKind::ClosingPreparing);
    let (fold, asked) = go_on(&world, session);
    assert_eq!(asked.closing.load(Ordering::Relaxed), 1);
    assert_eq!(reason(&fold), Some(StopReason::Closed(CloseReason::MaxSteps)));
}

/// Fault S20.
#[test]
fn a_clock_that_was_set_back_changes_nothing_but_what_people_read() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    let mut how = world.resume_options(Some("and further"));
    how.now = std::time::UNIX_EPOCH;
    let opened = world.reopen(session);
    let at = opened.history.at;
    let going = opened.resume(how).unwrap();
    let fold = world.drive(going.journal, going.machine, going.output, at);
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
    let mut order = Vec::new();
    let mut times = Vec::new();
    let see = |stored: &architect::journal::StoredRecord| {
        order.push((stored.seq, stored.at));
        times.extend(stored.ts);
        assert!(!matches!(stored.content, StoredContent::Other));
    };
    let mut see = see;
    world.store.replay(session, |_, stored, _| see(stored)).unwrap();
    assert!(order.is_sorted() && !times.is_sorted(), "{times:?}");
    replay_and_verify(&world, session);
}
