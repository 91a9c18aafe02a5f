//! Sessions are resumed: after a crash at any point, after an interrupt, and after their end.

use std::fs;

use architect::journal::{
    JournalEndKind, JournalError, MessageKind, QueuedMessage, ResumedSession, SessionId,
    StoredContent, WorkspaceChange, WorkspaceIdentity,
};
use architect::machine::{Event, Machine, State, StateKind, StopReason};
use architect::model::{
    CallId, ConversationItem, Fault, FaultKind, MessageOrigin, ReplyPart, RunTime, Signal,
    TimeSpan, ToolResult, ToolStatus,
};
use architect::port::{
    Disconnected, Journal, JournalRecord, Model, Observer, ReplyDelta, RunEvent, StoreError,
};
use architect::runner::{DriverInput, DriverInputSender};

use crate::kit::model::{FakeCall, call, model};

use super::fixture::{Participants, SessionFixture, count_replies, immediate, reply, script_model};

/// A journal whose process dies before the record with this number: nothing more is written, not even its end.
pub(super) struct CrashingJournal<J> {
    pub(super) journal: J,
    pub(super) records: usize,
}

impl<J: Journal> Journal for CrashingJournal<J> {
    fn append(&mut self, at: RunTime, record: JournalRecord<'_>) -> Result<(), StoreError> {
        let dead = || StoreError("dead".into());
        self.records = self.records.checked_sub(1).ok_or_else(dead)?;
        self.journal.append(at, record)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.journal.sync()
    }
}

/// Creates a session whose process dies after so many records.
fn crash_after(world: &SessionFixture, records: usize) -> SessionId {
    let (journal, fold, outcomes) = world.begin();
    let session = journal.session();
    let mail = Box::new(journal.queue());
    let journal = Box::new(CrashingJournal { journal, records });
    world.drive_with(
        Participants { journal, mail, model: script_model() },
        fold,
        outcomes,
        RunTime::START,
    );
    session
}

/// Dies right after the record with this name was written.
pub(super) fn crash_at(world: &SessionFixture, name: &str, nth: usize) -> SessionId {
    let rehearsal = SessionFixture::new();
    let (session, _) = rehearsal.run();
    let mut names = Vec::new();
    let see = |content: &StoredContent| names.push(content.name());
    let mut see = see;
    rehearsal.store.replay(session, |_, stored, _| see(&stored.content)).unwrap();
    let at = names.iter().enumerate().filter(|(_, found)| **found == name).nth(nth).unwrap().0;
    crash_after(world, at + 1)
}

fn results(fold: &Machine) -> Vec<&ToolResult> {
    let items = fold.conversation.entries().iter().map(|entry| &entry.item);
    let exchanges = items.filter_map(|item| match item {
        ConversationItem::Exchange(exchange) => Some(exchange.results()),
        ConversationItem::User(_) | ConversationItem::Assistant(_) => None,
    });
    exchanges.flatten().collect()
}

pub(super) fn result<'a>(fold: &'a Machine, call: &str) -> &'a ToolResult {
    let call = CallId::from(call);
    results(fold).into_iter().find(|result| result.call == call).unwrap()
}

fn messages_to_model(fold: &Machine) -> Vec<(MessageOrigin, &str)> {
    let items = fold.conversation.entries().iter().map(|entry| &entry.item);
    let messages = items.filter_map(|item| match item {
        ConversationItem::User(message) => Some((message.origin, &*message.text)),
        ConversationItem::Assistant(_) | ConversationItem::Exchange(_) => None,
    });
    messages.collect()
}

pub(super) fn reason(fold: &Machine) -> Option<StopReason> {
    match &fold.state {
        State::Done(done) => Some(done.outcome.reason),
        _ => None,
    }
}

/// Every record of a session is replayed in the state in which it was written.
pub(super) fn replay_and_verify(world: &SessionFixture, session: SessionId) {
    let mut differences = Vec::new();
    let replayed = world.store.replay(session, |_, _, replayed| {
        differences.extend(replayed.divergence.clone());
    });
    assert_eq!(differences, []);
    assert_eq!(replayed.unwrap().1.kind, JournalEndKind::Whole);
}

/// Faults S1, S15, S16, S18.
#[test]
fn whatever_the_last_record_was_the_session_goes_on_and_no_command_runs_twice() {
    for records in 0.. {
        let world = SessionFixture::new();
        let session = crash_after(&world, records);
        let was_over = world.history(session).machine.state.kind() == StateKind::Done;
        let ran = world.command_log().len();
        let fold = world.resume(session, None);
        assert_eq!(reason(&fold), Some(StopReason::LlmDone), "{records}");
        assert_eq!(world.file("a.txt").as_deref(), Some("first\n"), "{records}");
        assert_eq!(world.file("b.txt").as_deref(), Some("second\n"), "{records}");
        assert_eq!(world.command_log(), ["ran"], "{records}");
        let doubted = result(&fold, "c2").status == ToolStatus::InDoubt;
        assert!(!doubted || ran == 1, "{records}");
        assert_eq!(world.history(session).machine, fold);
        replay_and_verify(&world, session);
        if was_over {
            return;
        }
    }
}

/// Fault S18.
#[test]
fn going_on_twice_is_going_on_once() {
    for records in 0..20 {
        let world = SessionFixture::new();
        let session = crash_after(&world, records);
        let first = world.reopen(session).resume(world.resume_options(Some("more"))).unwrap();
        let (fold, outcomes) = (first.machine, first.output);
        drop(first.journal);
        let once = fs::read(world.journal(session)).unwrap();
        let second = world.reopen(session).resume(world.resume_options(Some("more"))).unwrap();
        assert_eq!((second.machine, second.output), (fold, outcomes), "{records}");
        drop(second.journal);
        assert_eq!(fs::read(world.journal(session)).unwrap(), once, "{records}");
        let fold = world.resume(session, Some("more"));
        let tasks = [(MessageOrigin::Task, "do it"), (MessageOrigin::Task, "more")];
        assert_eq!(messages_to_model(&fold), tasks, "{records}");
        replay_and_verify(&world, session);
    }
}

/// Fault S15.
#[test]
fn of_a_command_that_was_running_nobody_knows_and_the_answer_is_stored() {
    let world = SessionFixture::new();
    let session = crash_at(&world, "vetted", 1);
    let going = world.reopen(session).resume(world.resume_options(None)).unwrap();
    assert_eq!(going.recovered.len(), 1);
    drop(going);
    let State::Preparing(_) = world.history(session).machine.state else { panic!() };
    let result = result(&world.history(session).machine, "c2").clone();
    assert_eq!(result.status, ToolStatus::InDoubt);
    assert!(result.text.starts_with("Outcome unknown: the engine stopped"), "{}", result.text);
}

/// Fault S15.
#[test]
fn an_edit_is_decided_by_what_the_file_is() {
    let judged = |content: Option<&str>| {
        let world = SessionFixture::new();
        let session = crash_at(&world, "vetted", 0);
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
    assert!(text.ends_with("a.txt: neither in its old nor in its new state."), "{text}");
}

#[test]
fn a_session_that_was_over_goes_on_with_another_task_and_its_whole_conversation() {
    let world = SessionFixture::new();
    let (session, before) = world.run();
    let after = world.resume(session, Some("and now this"));
    let entries = before.conversation.entries();
    assert_eq!(&after.conversation.entries()[..entries.len()], entries);
    let more = &after.conversation.entries()[entries.len()];
    assert_eq!(more.item, ConversationItem::user(MessageOrigin::Task, "and now this"));
    assert_eq!(world.command_log(), ["ran"]);
    assert!(after.state.run().model_calls > before.state.run().model_calls);
    assert!(after.state.run().now > before.state.run().now);
    replay_and_verify(&world, session);
}

#[test]
fn a_session_that_is_done_stays_as_it_is_until_somebody_has_something_to_say() {
    let world = SessionFixture::new();
    let (session, before) = world.run();
    let journal = fs::read(world.journal(session)).unwrap();
    let again = world.resume(session, None);
    assert_eq!(again, before);
    assert_eq!(fs::read(world.journal(session)).unwrap(), journal);
    let letter = QueuedMessage { kind: MessageKind::Steering, text: "one more thing".into() };
    let running = world.reopen(session);
    world.store.send(session, &letter).unwrap();
    drop(running);
    let told = world.resume(session, None);
    assert!(told.state.run().model_calls > before.state.run().model_calls);
    replay_and_verify(&world, session);
}

#[test]
fn a_prompt_outlives_the_process_that_took_it() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    drop(world.reopen(session).resume(world.resume_options(Some("and now this"))).unwrap());
    let fold = world.resume(session, None);
    let mut said = messages_to_model(&fold);
    assert_eq!(said.pop(), Some((MessageOrigin::Task, "and now this")));
    assert_eq!(fs::read_dir(world.session_folder(session).join("mail")).unwrap().count(), 0);
}

/// Fault S14.
#[test]
fn the_model_is_told_once_of_files_that_others_have_changed() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    fs::write(world.workspace().join("a.txt"), "mine").unwrap();
    let opened = world.reopen(session);
    let at = opened.history.at;
    let ResumedSession {
        journal, machine: fold, output: outcomes, workspace_changes: drift, ..
    } = opened.resume(world.resume_options(Some("go"))).unwrap();
    assert_eq!(drift, [WorkspaceChange::Files(vec!["a.txt".to_owned()])]);
    let fold = world.drive(journal, fold, outcomes, at);
    let (origin, text) = messages_to_model(&fold)[1];
    assert_eq!(origin, MessageOrigin::System);
    assert!(text.contains("no longer as this session wrote them: a.txt."), "{text}");
    let fold = world.resume(session, Some("go on"));
    assert_eq!(
        messages_to_model(&fold)
            .iter()
            .filter(|(origin, _)| *origin == MessageOrigin::System)
            .count(),
        1
    );
    replay_and_verify(&world, session);
}

/// Fault S14.
#[test]
fn a_workspace_that_is_gone_ends_it_before_anything_happens() {
    let world = SessionFixture::new();
    let (session, _) = world.run();
    let how = world.resume_options(None);
    fs::remove_dir_all(world.workspace()).unwrap();
    let length = fs::metadata(world.journal(session)).unwrap().len();
    let error = world.reopen(session).resume(how).unwrap_err();
    assert!(matches!(error, JournalError::NoWorkspace(_)), "{error}");
    assert_eq!(fs::metadata(world.journal(session)).unwrap().len(), length);
    assert!(WorkspaceIdentity::inspect(&world.workspace()).is_err());
}

/// Sends an interrupt when the first text of a reply is seen.
struct InterruptingObserver(DriverInputSender);

impl Observer for InterruptingObserver {
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        if matches!(seen, RunEvent::ReplyDelta { delta: ReplyDelta::Text(_), .. }) {
            let event = Event::Interrupt { signal: Signal::Interrupt };
            self.0.send(DriverInput::Event(event));
        }
        Ok(())
    }
}

/// Returns a model whose reply begins and never ends.
fn endless_model() -> Box<dyn Model> {
    model(|_| {
        FakeCall::new(|scope, sink| {
            sink(ReplyDelta::Started);
            sink(ReplyDelta::Text("I was about to".to_owned()));
            scope.sleep(TimeSpan::from_secs(60));
            Err(Fault::new(FaultKind::Connect, "cancelled"))
        })
    })
}

/// Creates a session that is interrupted during a reply.
pub(super) fn interrupted_session(world: &SessionFixture) -> SessionId {
    let (journal, fold, outcomes) = world.begin();
    let session = journal.session();
    let cast = Participants { model: endless_model(), ..Participants::new(journal) };
    let fold = world.drive_with_inbox(cast, fold, outcomes, RunTime::START, |inbox| {
        Box::new(InterruptingObserver(inbox))
    });
    assert_eq!(reason(&fold), Some(StopReason::UserInterrupt(Signal::Interrupt)));
    session
}

/// Fault G1.
#[test]
fn what_a_call_said_before_an_interrupt_is_kept_as_an_event_and_is_no_history() {
    let world = SessionFixture::new();
    let session = interrupted_session(&world);
    let mut partial = None;
    let replayed = world.store.replay(session, |_, stored, _| {
        if let StoredContent::Partial(found) = &stored.content {
            partial = Some(found.text.clone());
        }
    });
    assert_eq!(partial.as_deref(), Some("I was about to"));
    assert_eq!(count_replies(replayed.unwrap().0.machine.conversation.entries()), 0);
    let fold = world.resume(session, None);
    assert_eq!(reason(&fold), Some(StopReason::LlmDone));
    replay_and_verify(&world, session);
}

/// Returns a model that calls `on_turn` before each reply.
fn observed_model(on_turn: impl Fn(usize) + Send + 'static) -> Box<dyn Model> {
    model(move |request| {
        let turn = count_replies(request.entries);
        on_turn(turn);
        immediate(reply(match turn {
            0 => vec![call("c1", "read", r#"{"path":"note"}"#)],
            _ => vec![ReplyPart::Text("Done.".into())],
        }))
    })
}

#[test]
fn messages_from_another_process_reach_the_running_session_once() {
    let world = SessionFixture::new();
    fs::write(world.workspace().join("note"), "n").unwrap();
    let (journal, fold, outcomes) = world.begin();
    let session = journal.session();
    let store = world.store.clone();
    let letter = move |kind, text: &str| {
        store.send(session, &QueuedMessage { kind, text: text.into() }).unwrap();
    };
    // While the first call is prepared, a steering message comes; before the last one, a follow-up.
    let send = move |turn| match turn {
        0 => letter(MessageKind::Steering, "to the left"),
        1 => letter(MessageKind::FollowUp, "and then this"),
        _ => {}
    };
    let cast = Participants { model: observed_model(send), ..Participants::new(journal) };
    let fold = world.drive_with(cast, fold, outcomes, RunTime::START);
    assert_eq!(
        messages_to_model(&fold),
        [
            (MessageOrigin::Task, "do it"),
            (MessageOrigin::Steering, "[STEERING] to the left"),
            (MessageOrigin::FollowUp, "and then this"),
        ]
    );
    assert_eq!(fs::read_dir(world.session_folder(session).join("mail")).unwrap().count(), 0);
    let mut mail = 0;
    world.store.replay(session, |_, stored, _| mail += stored.message_ids.len()).unwrap();
    assert_eq!(mail, 2);
    replay_and_verify(&world, session);
}

/// A follow-up that this run can't take any more is not lost.
#[test]
fn a_follow_up_beyond_the_bound_waits_for_the_next_run() {
    let world = SessionFixture::new();
    let mut rules = super::fixture::rules();
    rules.bounds.follow_ups = 1;
    let (journal, fold, outcomes) = world.try_begin_by(rules).unwrap();
    let session = journal.session();
    for text in ["once more", "and again"] {
        let letter = QueuedMessage { kind: MessageKind::FollowUp, text: text.into() };
        world.store.send(session, &letter).unwrap();
    }
    let fold = world.drive(journal, fold, outcomes, RunTime::START);
    let said = |fold: &Machine, text: &str| {
        fold.conversation
            .entries()
            .iter()
            .any(|e| e.item == ConversationItem::user(MessageOrigin::FollowUp, text))
    };
    assert!(said(&fold, "once more") && !said(&fold, "and again"));
    let fold = world.resume(session, None);
    assert!(said(&fold, "and again"));
    replay_and_verify(&world, session);
}
