//! What becomes of each effect that was under way when the process died.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use architect::journal::{Content, SessionId};
use architect::machine::{CloseReason, Entry, Fold, Purpose, State, StateKind, StopReason};
use architect::model::{
    ContextRules, Fault, Item, Limits, Origin, Part, Reply, Rules, Time, Tokens, ToolCall,
    ToolStatus, Usage,
};
use architect::port::{Ask, Model, ModelCall};

use super::resume::{Dies, dies_at, reason, result, verified};
use super::world::{Cast, Say, World, reply, rules};

/// How often a model was asked for each purpose.
#[derive(Clone, Default)]
pub(super) struct Asked {
    closing: Arc<AtomicU32>,
    compaction: Arc<AtomicU32>,
}

/// A model that reads the same file five times, with requests that grow until somebody sums them up; what it says
/// depends on nothing but the conversation.
#[derive(Default)]
pub(super) struct Reads(pub(super) Asked);

impl Model for Reads {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let text = |text: &str| vec![Part::Text(text.into())];
        let last = ask.entries.iter().map(|entry| entry.id.0).max().unwrap_or(0);
        let parts = match ask.purpose {
            Purpose::Compaction => {
                self.0.compaction.fetch_add(1, Ordering::Relaxed);
                text("The note was read; it says n.")
            }
            Purpose::Closing => {
                self.0.closing.fetch_add(1, Ordering::Relaxed);
                text("That was all.")
            }
            Purpose::Agent if last < 5 => {
                let id = format!("r{last}");
                vec![Part::Call(ToolCall::new((&*id).into(), "read", r#"{"path":"note"}"#))]
            }
            Purpose::Agent => text("It says n."),
        };
        let input = Tokens(400 * ask.entries.len() as u64);
        let usage = Usage { input, output: Tokens(10), ..Usage::default() };
        Ok(Box::new(Say(Reply { usage, ..reply(parts) })))
    }
}

/// Rules by which the fifth request of [`Reads`] is too large.
pub(super) fn narrow() -> Rules {
    let context = ContextRules {
        window: Tokens(2_000),
        summarize_after: 2,
        keep_recent: 1,
        ..ContextRules::default()
    };
    Rules { context, ..rules() }
}

/// Rules by which a run closes after its second step.
pub(super) fn short() -> Rules {
    Rules { limits: Limits { max_steps: 2, ..Limits::default() }, ..rules() }
}

pub(super) fn world() -> World {
    let world = World::new();
    std::fs::write(world.workspace().join("note"), "n").unwrap();
    world
}

fn begin(world: &World, rules: Rules, records: usize) -> SessionId {
    let (journal, fold, outcomes) = world.try_begin_by(rules).unwrap();
    let session = journal.session();
    let mail = Box::new(journal.mail());
    let journal = Box::new(Dies { journal, records });
    world.play(Cast { journal, mail, model: Box::<Reads>::default() }, fold, outcomes, Time::START);
    session
}

/// Dies in this state: after what led there was written, and before anything that happened there.
fn dies_in(world: &World, rules: &Rules, state: StateKind) -> SessionId {
    let rehearsal = self::world();
    let session = begin(&rehearsal, rules.clone(), usize::MAX);
    let mut at = None;
    let replayed = rehearsal.store.replay(session, |_, stored, replayed| {
        if at.is_none() && replayed.met.state == state {
            at = Some(stored.seq);
        }
    });
    replayed.unwrap();
    // The header is no record of the journal that dies.
    let records = usize::try_from(at.expect("the run comes there")).unwrap() - 1;
    let session = begin(world, rules.clone(), records);
    assert_eq!(world.past(session).fold.state.kind(), state);
    session
}

/// Goes on with a session of [`Reads`], and returns what the model was asked meanwhile.
fn go_on(world: &World, session: SessionId) -> (Fold, Asked) {
    let opened = world.reopen(session);
    let at = opened.past.at;
    let going = opened.go_on(world.how(None)).unwrap();
    let asked = Asked::default();
    let cast = Cast { model: Box::new(Reads(asked.clone())), ..Cast::new(going.journal) };
    let fold = world.play(cast, going.fold, going.outcomes, at);
    verified(world, session);
    (fold, asked)
}

fn summaries(fold: &Fold) -> usize {
    let is_summary = |entry: &&Entry| match &entry.item {
        Item::User(message) => message.origin == Origin::Summary,
        Item::Assistant(_) | Item::Exchange(_) => false,
    };
    fold.conversation.entries().iter().filter(is_summary).count()
}

#[test]
fn a_tool_that_was_over_is_not_run_again_and_its_answer_stands() {
    let world = World::new();
    let session = dies_at(&world, "settled", 1);
    assert_eq!(world.ran(), ["ran"]);
    let fold = world.resume(session, None);
    assert_eq!(world.ran(), ["ran"]);
    assert_eq!(result(&fold, "c2").status, ToolStatus::Ok);
}

/// Fault S16.
#[test]
fn a_tool_that_had_not_begun_runs() {
    let world = World::new();
    let session = dies_at(&world, "replied", 1);
    assert!(world.ran().is_empty());
    let fold = world.resume(session, None);
    assert_eq!((world.ran().len(), result(&fold, "c2").status), (1, ToolStatus::Ok));
}

#[test]
fn a_call_that_changes_nothing_runs_again() {
    let world = world();
    let session = dies_in(&world, &rules(), StateKind::Executing);
    let State::Executing(_) = world.past(session).fold.state else { panic!() };
    let (fold, _) = go_on(&world, session);
    assert_eq!(result(&fold, "r0").status, ToolStatus::Ok);
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
}

#[test]
fn a_request_that_was_sent_is_charged_and_sent_again() {
    let world = world();
    let session = dies_in(&world, &rules(), StateKind::CallingSending);
    let before = world.past(session).fold.state.run().spent;
    let going = world.reopen(session).go_on(world.how(None)).unwrap();
    let after = going.fold.state.run().spent;
    assert!(after.cost > before.cost && after.tokens > before.tokens, "{before:?} {after:?}");
    drop(going);
    let (fold, _) = go_on(&world, session);
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
}

/// Fault S17.
#[test]
fn a_summary_that_was_asked_for_is_asked_for_again_and_the_old_history_stands_until_it_is_there() {
    let world = world();
    let session = dies_in(&world, &narrow(), StateKind::CompactingSending);
    let before = world.past(session).fold;
    assert_eq!(summaries(&before), 0);
    let going = world.reopen(session).go_on(world.how(None)).unwrap();
    assert_eq!(going.fold.conversation.entries(), before.conversation.entries());
    drop(going);
    let (fold, asked) = go_on(&world, session);
    assert_eq!((summaries(&fold), asked.compaction.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
}

/// Fault S17.
#[test]
fn a_last_word_that_was_asked_for_is_not_asked_for_again() {
    let world = world();
    let session = dies_in(&world, &short(), StateKind::ClosingSending);
    let (fold, asked) = go_on(&world, session);
    assert_eq!(asked.closing.load(Ordering::Relaxed), 0);
    assert_eq!(reason(&fold), Some(StopReason::Closed(CloseReason::MaxSteps)));
}

/// Fault S17.
#[test]
fn a_last_word_that_was_not_yet_asked_for_is_asked_for() {
    let world = world();
    let session = dies_in(&world, &short(), StateKind::ClosingPreparing);
    let (fold, asked) = go_on(&world, session);
    assert_eq!(asked.closing.load(Ordering::Relaxed), 1);
    assert_eq!(reason(&fold), Some(StopReason::Closed(CloseReason::MaxSteps)));
}

/// Fault S20.
#[test]
fn a_clock_that_was_set_back_changes_nothing_but_what_people_read() {
    let world = World::new();
    let (session, _) = world.run();
    let mut how = world.how(Some("and further"));
    how.now = std::time::UNIX_EPOCH;
    let opened = world.reopen(session);
    let at = opened.past.at;
    let going = opened.go_on(how).unwrap();
    let fold = world.drive(going.journal, going.fold, going.outcomes, at);
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
    let mut order = Vec::new();
    let mut times = Vec::new();
    let see = |stored: &architect::journal::Stored| {
        order.push((stored.seq, stored.at));
        times.extend(stored.ts);
        assert!(!matches!(stored.content, Content::Other));
    };
    let mut see = see;
    world.store.replay(session, |_, stored, _| see(stored)).unwrap();
    assert!(order.is_sorted() && !times.is_sorted(), "{times:?}");
    verified(&world, session);
}
