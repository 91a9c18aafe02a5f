//! Sessions go on: after a crash at any point, after an interrupt, and after their end.

use std::fs;
use std::sync::Arc;

use architect::journal::{
    Content, Drift, EndKind, Going, JournalError, Letter, LetterKind, SessionId, Workspace,
};
use architect::machine::{Event, Fold, State, StateKind, StopReason};
use architect::model::{
    CallId, Fault, FaultKind, Item, Origin, Part, Reply, Signal, Span, Time, ToolCall, ToolResult,
    ToolStatus,
};
use architect::port::{
    Ask, Delta, Gone, Journal, Model, ModelCall, Observer, Record, Scope, Seen, StoreError,
};
use architect::runner::{Arrival, Inbox};

use super::world::{Cast, Say, Script, World, reply, turns};

/// A journal whose process dies before the record with this number: nothing is written any more, its end neither.
pub(super) struct Dies<J> {
    pub(super) journal: J,
    pub(super) records: usize,
}

impl<J: Journal> Journal for Dies<J> {
    fn append(&mut self, at: Time, record: Record<'_>) -> Result<(), StoreError> {
        let dead = || StoreError("dead".into());
        self.records = self.records.checked_sub(1).ok_or_else(dead)?;
        self.journal.append(at, record)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.journal.sync()
    }
}

/// Begins a session whose process dies after so many records.
fn dies_after(world: &World, records: usize) -> SessionId {
    let (journal, fold, outcomes) = world.begin();
    let session = journal.session();
    let mail = Box::new(journal.mail());
    let journal = Box::new(Dies { journal, records });
    world.play(Cast { journal, mail, model: Box::new(Script) }, fold, outcomes, Time::START);
    session
}

/// Dies right after the record with this name was written.
pub(super) fn dies_at(world: &World, name: &str, nth: usize) -> SessionId {
    let rehearsal = World::new();
    let (session, _) = rehearsal.run();
    let mut names = Vec::new();
    let see = |content: &Content| names.push(content.name());
    let mut see = see;
    rehearsal.store.replay(session, |_, stored, _| see(&stored.content)).unwrap();
    let at = names.iter().enumerate().filter(|(_, found)| **found == name).nth(nth).unwrap().0;
    dies_after(world, at + 1)
}

fn results(fold: &Fold) -> Vec<&ToolResult> {
    let items = fold.conversation.entries().iter().map(|entry| &entry.item);
    let exchanges = items.filter_map(|item| match item {
        Item::Exchange(exchange) => Some(exchange.results()),
        Item::User(_) | Item::Assistant(_) => None,
    });
    exchanges.flatten().collect()
}

pub(super) fn result<'a>(fold: &'a Fold, call: &str) -> &'a ToolResult {
    let call = CallId::from(call);
    results(fold).into_iter().find(|result| result.call == call).unwrap()
}

fn told(fold: &Fold) -> Vec<(Origin, &str)> {
    let items = fold.conversation.entries().iter().map(|entry| &entry.item);
    let messages = items.filter_map(|item| match item {
        Item::User(message) => Some((message.origin, &*message.text)),
        Item::Assistant(_) | Item::Exchange(_) => None,
    });
    messages.collect()
}

pub(super) fn reason(fold: &Fold) -> Option<StopReason> {
    match &fold.state {
        State::Done(done) => Some(done.outcome.reason),
        _ => None,
    }
}

/// Every record of a session meets the state that it met.
pub(super) fn verified(world: &World, session: SessionId) {
    let mut differences = Vec::new();
    let replayed = world.store.replay(session, |_, _, replayed| {
        differences.extend(replayed.difference.clone());
    });
    assert_eq!(differences, []);
    assert_eq!(replayed.unwrap().1.kind, EndKind::Whole);
}

/// Faults S1, S15, S16, S18.
#[test]
fn whatever_the_last_record_was_the_session_goes_on_and_no_command_runs_twice() {
    for records in 0.. {
        let world = World::new();
        let session = dies_after(&world, records);
        let was_over = world.past(session).fold.state.kind() == StateKind::Done;
        let ran = world.ran().len();
        let fold = world.resume(session, None);
        assert_eq!(reason(&fold), Some(StopReason::LlmDone), "{records}");
        assert_eq!(world.file("a.txt").as_deref(), Some("first\n"), "{records}");
        assert_eq!(world.file("b.txt").as_deref(), Some("second\n"), "{records}");
        assert_eq!(world.ran(), ["ran"], "{records}");
        let doubted = result(&fold, "c2").status == ToolStatus::InDoubt;
        assert!(!doubted || ran == 1, "{records}");
        assert_eq!(world.past(session).fold, fold);
        verified(&world, session);
        if was_over {
            return;
        }
    }
}

/// Fault S18.
#[test]
fn going_on_twice_is_going_on_once() {
    for records in 0..20 {
        let world = World::new();
        let session = dies_after(&world, records);
        let first = world.reopen(session).go_on(world.how(Some("more"))).unwrap();
        let (fold, outcomes) = (first.fold, first.outcomes);
        drop(first.journal);
        let once = fs::read(world.journal(session)).unwrap();
        let second = world.reopen(session).go_on(world.how(Some("more"))).unwrap();
        assert_eq!((second.fold, second.outcomes), (fold, outcomes), "{records}");
        drop(second.journal);
        assert_eq!(fs::read(world.journal(session)).unwrap(), once, "{records}");
        let fold = world.resume(session, Some("more"));
        let tasks = [(Origin::Task, "do it"), (Origin::Task, "more")];
        assert_eq!(told(&fold), tasks, "{records}");
        verified(&world, session);
    }
}

/// Fault S15.
#[test]
fn of_a_command_that_was_running_nobody_knows_and_the_answer_is_stored() {
    let world = World::new();
    let session = dies_at(&world, "vetted", 1);
    let going = world.reopen(session).go_on(world.how(None)).unwrap();
    assert_eq!(going.found.len(), 1);
    drop(going);
    let State::Preparing(_) = world.past(session).fold.state else { panic!() };
    let result = result(&world.past(session).fold, "c2").clone();
    assert_eq!(result.status, ToolStatus::InDoubt);
    assert!(result.text.starts_with("Outcome unknown: the engine stopped"), "{}", result.text);
}

/// Fault S15.
#[test]
fn an_edit_is_decided_by_what_the_file_is() {
    let judged = |content: Option<&str>| {
        let world = World::new();
        let session = dies_at(&world, "vetted", 0);
        match content {
            Some(content) => fs::write(world.workspace().join("a.txt"), content).unwrap(),
            None => fs::remove_file(world.workspace().join("a.txt")).unwrap(),
        }
        let fold = world.resume(session, None);
        let result = result(&fold, "c1").clone();
        (result.status, result.text.to_string(), world.file("a.txt").unwrap())
    };
    let (status, text, _) = judged(Some("first\n"));
    assert_eq!(status, ToolStatus::Ok);
    assert!(text.ends_with("the files show that it was completed: a.txt."), "{text}");
    let (status, text, file) = judged(None);
    assert_eq!((status, &*text, &*file), (ToolStatus::Ok, "written", "first\n"));
    let (status, text, file) = judged(Some("something else"));
    assert_eq!((status, &*file), (ToolStatus::InDoubt, "something else"));
    assert!(text.ends_with("a.txt: neither as it was before nor as it was to be."), "{text}");
}

#[test]
fn a_session_that_was_over_goes_on_with_another_task_and_its_whole_conversation() {
    let world = World::new();
    let (session, before) = world.run();
    let after = world.resume(session, Some("and now this"));
    let entries = before.conversation.entries();
    assert_eq!(&after.conversation.entries()[..entries.len()], entries);
    let more = &after.conversation.entries()[entries.len()];
    assert_eq!(more.item, Item::user(Origin::Task, "and now this"));
    assert_eq!(world.ran(), ["ran"]);
    assert!(after.state.run().calls > before.state.run().calls);
    assert!(after.state.run().now > before.state.run().now);
    verified(&world, session);
}

#[test]
fn a_session_that_is_done_stays_as_it_is_until_somebody_has_something_to_say() {
    let world = World::new();
    let (session, before) = world.run();
    let journal = fs::read(world.journal(session)).unwrap();
    let again = world.resume(session, None);
    assert_eq!(again, before);
    assert_eq!(fs::read(world.journal(session)).unwrap(), journal);
    let letter = Letter { kind: LetterKind::Steering, text: "one more thing".into() };
    let running = world.reopen(session);
    world.store.send(session, &letter).unwrap();
    drop(running);
    let told = world.resume(session, None);
    assert!(told.state.run().calls > before.state.run().calls);
    verified(&world, session);
}

#[test]
fn a_prompt_outlives_the_process_that_took_it() {
    let world = World::new();
    let (session, _) = world.run();
    drop(world.reopen(session).go_on(world.how(Some("and now this"))).unwrap());
    let fold = world.resume(session, None);
    let mut said = told(&fold);
    assert_eq!(said.pop(), Some((Origin::Task, "and now this")));
    assert_eq!(fs::read_dir(world.beside(session).join("mail")).unwrap().count(), 0);
}

/// Fault S14.
#[test]
fn the_model_is_told_once_of_files_that_others_have_changed() {
    let world = World::new();
    let (session, _) = world.run();
    fs::write(world.workspace().join("a.txt"), "mine").unwrap();
    let opened = world.reopen(session);
    let at = opened.past.at;
    let Going { journal, fold, outcomes, drift, .. } = opened.go_on(world.how(Some("go"))).unwrap();
    assert_eq!(drift, [Drift::Files(vec!["a.txt".to_owned()])]);
    let fold = world.drive(journal, fold, outcomes, at);
    let (origin, text) = told(&fold)[1];
    assert_eq!(origin, Origin::System);
    assert!(text.contains("no longer as this session wrote them: a.txt."), "{text}");
    let fold = world.resume(session, Some("go on"));
    assert_eq!(told(&fold).iter().filter(|(origin, _)| *origin == Origin::System).count(), 1);
    verified(&world, session);
}

/// Fault S14.
#[test]
fn a_workspace_that_is_gone_ends_it_before_anything_happens() {
    let world = World::new();
    let (session, _) = world.run();
    let how = world.how(None);
    fs::remove_dir_all(world.workspace()).unwrap();
    let length = fs::metadata(world.journal(session)).unwrap().len();
    let error = world.reopen(session).go_on(how).unwrap_err();
    assert!(matches!(error, JournalError::NoWorkspace(_)), "{error}");
    assert_eq!(fs::metadata(world.journal(session)).unwrap().len(), length);
    assert!(Workspace::look(&world.workspace()).is_err());
}

/// Sends an interrupt when the first text of a reply is seen.
struct Impatient(Inbox);

impl Observer for Impatient {
    fn see(&mut self, seen: &Seen<'_>) -> Result<(), Gone> {
        if matches!(seen, Seen::Delta { delta: Delta::Text(_), .. }) {
            let event = Event::Interrupt { signal: Signal::Interrupt };
            self.0.post(Arrival::Event(event));
        }
        Ok(())
    }
}

/// Begins to speak and never ends.
struct Endless;

impl Model for Endless {
    fn prepare(&mut self, _: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        Ok(Box::new(Self))
    }
}

impl ModelCall for Endless {
    fn run(self: Box<Self>, scope: &Scope, sink: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        sink(Delta::Begun);
        sink(Delta::Text("I was about to".to_owned()));
        scope.sleep(Span::secs(60));
        Err(Fault::new(FaultKind::Connect, "cancelled"))
    }
}

/// Begins a session that is interrupted while the model speaks.
pub(super) fn interrupted_session(world: &World) -> SessionId {
    let (journal, fold, outcomes) = world.begin();
    let session = journal.session();
    let cast = Cast { model: Box::new(Endless), ..Cast::new(journal) };
    let fold =
        world.play_before(cast, fold, outcomes, Time::START, |inbox| Box::new(Impatient(inbox)));
    assert_eq!(reason(&fold), Some(StopReason::UserInterrupt(Signal::Interrupt)));
    session
}

/// Fault G1.
#[test]
fn what_a_call_said_before_an_interrupt_is_kept_as_an_event_and_is_no_history() {
    let world = World::new();
    let session = interrupted_session(&world);
    let mut partial = None;
    let replayed = world.store.replay(session, |_, stored, _| {
        if let Content::Partial(found) = &stored.content {
            partial = Some(found.text.clone());
        }
    });
    assert_eq!(partial.as_deref(), Some("I was about to"));
    assert_eq!(turns(replayed.unwrap().0.fold.conversation.entries()), 0);
    let fold = world.resume(session, None);
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
    verified(&world, session);
}

/// Tells another process's user what it heard, and answers with it.
struct Echo {
    send: Arc<dyn Fn(usize) + Send + Sync>,
}

impl Model for Echo {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let turn = turns(ask.entries);
        (self.send)(turn);
        let words = match turn {
            0 => vec![Part::Call(ToolCall::new("c1".into(), "read", r#"{"path":"note"}"#))],
            _ => vec![Part::Text("Done.".into())],
        };
        Ok(Box::new(Say(reply(words))))
    }
}

#[test]
fn messages_from_another_process_reach_the_running_session_once() {
    let world = World::new();
    fs::write(world.workspace().join("note"), "n").unwrap();
    let (journal, fold, outcomes) = world.begin();
    let session = journal.session();
    let store = world.store.clone();
    let letter = move |kind, text: &str| {
        store.send(session, &Letter { kind, text: text.into() }).unwrap();
    };
    // While the first call is prepared, somebody steers; before the last one, there is more to do.
    let send = move |turn| match turn {
        0 => letter(LetterKind::Steering, "to the left"),
        1 => letter(LetterKind::FollowUp, "and then this"),
        _ => {}
    };
    let cast = Cast { model: Box::new(Echo { send: Arc::new(send) }), ..Cast::new(journal) };
    let fold = world.play(cast, fold, outcomes, Time::START);
    assert_eq!(
        told(&fold),
        [
            (Origin::Task, "do it"),
            (Origin::Steering, "[STEERING] to the left"),
            (Origin::FollowUp, "and then this"),
        ]
    );
    assert_eq!(fs::read_dir(world.beside(session).join("mail")).unwrap().count(), 0);
    let mut mail = 0;
    world.store.replay(session, |_, stored, _| mail += stored.mail.len()).unwrap();
    assert_eq!(mail, 2);
    verified(&world, session);
}

/// What can't be followed any more in this run is not lost.
#[test]
fn a_follow_up_beyond_the_bound_waits_for_the_next_run() {
    let world = World::new();
    let mut rules = super::world::rules();
    rules.bounds.follow_ups = 1;
    let (journal, fold, outcomes) = world.try_begin_by(rules).unwrap();
    let session = journal.session();
    for text in ["once more", "and again"] {
        let letter = Letter { kind: LetterKind::FollowUp, text: text.into() };
        world.store.send(session, &letter).unwrap();
    }
    let fold = world.drive(journal, fold, outcomes, Time::START);
    let said = |fold: &Fold, text: &str| {
        fold.conversation.entries().iter().any(|e| e.item == Item::user(Origin::FollowUp, text))
    };
    assert!(said(&fold, "once more") && !said(&fold, "and again"));
    let fold = world.resume(session, None);
    assert!(said(&fold, "and again"));
    verified(&world, session);
}
