//! Sessions are resumed: after a crash at any point, after an interrupt, and after their end.

use std::fs;

use architect::journal::{
    JournalEndKind, JournalError, MessageKind, QueuedMessage, ResumedSession, SessionId,
    StoredContent, WorkspaceChange, WorkspaceIdentity,
};
use architect::machine::{Event, Machine, State, StateKind, StopReason};
use architect::port::{
    Disconnected, Journal, JournalRecord, Model, Observer, ReplyDelta, RunEvent, StoreError,
};
use architect::runner::{DriverInput, DriverInputSender};
use architect::types::{
    CallId, ConversationItem, Fault, FaultKind, MessageOrigin, ReplyPart, RunTime, Signal,
    TimeSpan, ToolResult, ToolStatus,
};

use crate::kit::model::{FakeCall, call, model};

use super::fixture::{Participants, SessionFixture, count_replies, immediate, reply, script_model};

/// A journal that fails from the record with this number on, as if the process had died: not even the end is written.
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

/// Creates a session whose process dies after this number of records.
fn crash_after(fixture: &SessionFixture, records: usize) -> SessionId {
    let (journal, machine, output) = fixture.begin();
    let session = journal.session();
    let messages = Box::new(journal.queue());
    let journal = Box::new(CrashingJournal { journal, records });
    fixture.drive_with(
        Participants { journal, messages, model: script_model() },
        machine,
        output,
        RunTime::START,
    );
    session
}

/// Dies right after the record with this name was written.
pub(super) fn crash_at(fixture: &SessionFixture, name: &str, nth: usize) -> SessionId {
    let reference = SessionFixture::new();
    let (session, _) = reference.run();
    let mut names = Vec::new();
    let see = |content: &StoredContent| names.push(content.name());
    let mut see = see;
    reference.store.replay(session, |_, stored, _| see(&stored.content)).unwrap();
    let at = names.iter().enumerate().filter(|(_, found)| **found == name).nth(nth).unwrap().0;
    crash_after(fixture, at + 1)
}

fn results(machine: &Machine) -> Vec<&ToolResult> {
    let items = machine.conversation.entries().iter().map(|entry| &entry.item);
    let exchanges = items.filter_map(|item| match item {
        ConversationItem::Exchange(exchange) => Some(exchange.results()),
        ConversationItem::User(_) | ConversationItem::Assistant(_) => None,
    });
    exchanges.flatten().collect()
}

pub(super) fn result<'a>(machine: &'a Machine, call: &str) -> &'a ToolResult {
    let call = CallId::from(call);
    results(machine).into_iter().find(|result| result.call == call).unwrap()
}

fn messages_to_model(machine: &Machine) -> Vec<(MessageOrigin, &str)> {
    let items = machine.conversation.entries().iter().map(|entry| &entry.item);
    let messages = items.filter_map(|item| match item {
        ConversationItem::User(message) => Some((message.origin, &*message.text)),
        ConversationItem::Assistant(_) | ConversationItem::Exchange(_) => None,
    });
    messages.collect()
}

pub(super) fn reason(machine: &Machine) -> Option<StopReason> {
    match &machine.state {
        State::Done(done) => Some(done.outcome.reason),
        _ => None,
    }
}

/// Every record of a session is replayed in the state in which it was written.
pub(super) fn replay_and_verify(fixture: &SessionFixture, session: SessionId) {
    let mut differences = Vec::new();
    let replayed = fixture.store.replay(session, |_, _, replayed| {
        differences.extend(replayed.divergence.clone());
    });
    assert_eq!(differences, []);
    assert_eq!(replayed.unwrap().1.kind, JournalEndKind::Whole);
}

/// Faults S1, S15, S16, S18.
#[test]
fn whatever_the_last_record_was_the_session_goes_on_and_no_command_runs_twice() {
    for records in 0.. {
        let fixture = SessionFixture::new();
        let session = crash_after(&fixture, records);
        let was_over = fixture.history(session).machine.state.kind() == StateKind::Done;
        let ran = fixture.command_log().len();
        let machine = fixture.resume(session, None);
        assert_eq!(reason(&machine), Some(StopReason::LlmDone), "{records}");
        assert_eq!(fixture.file("a.txt").as_deref(), Some("first\n"), "{records}");
        assert_eq!(fixture.file("b.txt").as_deref(), Some("second\n"), "{records}");
        assert_eq!(fixture.command_log(), ["ran"], "{records}");
        let doubted = result(&machine, "c2").status == ToolStatus::InDoubt;
        assert!(!doubted || ran == 1, "{records}");
        assert_eq!(fixture.history(session).machine, machine);
        replay_and_verify(&fixture, session);
        if was_over {
            return;
        }
    }
}

/// Fault S18.
#[test]
fn going_on_twice_is_going_on_once() {
    for records in 0..20 {
        let fixture = SessionFixture::new();
        let session = crash_after(&fixture, records);
        let first = fixture.reopen(session).resume(fixture.resume_options(Some("more"))).unwrap();
        let (machine, output) = (first.machine, first.output);
        drop(first.journal);
        let once = fs::read(fixture.journal(session)).unwrap();
        let second = fixture.reopen(session).resume(fixture.resume_options(Some("more"))).unwrap();
        assert_eq!((second.machine, second.output), (machine, output), "{records}");
        drop(second.journal);
        assert_eq!(fs::read(fixture.journal(session)).unwrap(), once, "{records}");
        let machine = fixture.resume(session, Some("more"));
        let tasks = [(MessageOrigin::Task, "do it"), (MessageOrigin::Task, "more")];
        assert_eq!(messages_to_model(&machine), tasks, "{records}");
        replay_and_verify(&fixture, session);
    }
}

/// Fault S15.
#[test]
fn a_command_that_was_running_has_an_unknown_outcome() {
    let fixture = SessionFixture::new();
    let session = crash_at(&fixture, "vetted", 1);
    let going = fixture.reopen(session).resume(fixture.resume_options(None)).unwrap();
    assert_eq!(going.recovered.len(), 1);
    drop(going);
    let State::Preparing(_) = fixture.history(session).machine.state else { panic!() };
    let result = result(&fixture.history(session).machine, "c2").clone();
    assert_eq!(result.status, ToolStatus::InDoubt);
    assert!(result.text.starts_with("Outcome unknown: the engine stopped"), "{}", result.text);
}

/// Fault S15.
#[test]
fn an_interrupted_edit_is_decided_by_the_file() {
    let recovered = |content: Option<&str>| {
        let fixture = SessionFixture::new();
        let session = crash_at(&fixture, "vetted", 0);
        match content {
            Some(content) => fs::write(fixture.workspace().join("a.txt"), content).unwrap(),
            None => fs::remove_file(fixture.workspace().join("a.txt")).unwrap(),
        }
        let machine = fixture.resume(session, None);
        let result = result(&machine, "c1").clone();
        (result.status, result.text.to_string(), fixture.file("a.txt").unwrap())
    };
    let (status, text, _) = recovered(Some("first\n"));
    assert_eq!(status, ToolStatus::Ok);
    assert!(text.ends_with("the files show that it was completed: a.txt."), "{text}");
    let (status, text, file) = recovered(None);
    assert_eq!((status, &*text, &*file), (ToolStatus::Ok, "written", "first\n"));
    let (status, text, file) = recovered(Some("something else"));
    assert_eq!((status, &*file), (ToolStatus::InDoubt, "something else"));
    assert!(text.ends_with("a.txt: neither in its old nor in its new state."), "{text}");
}

#[test]
fn a_completed_session_is_resumed_with_another_task_and_its_whole_conversation() {
    let fixture = SessionFixture::new();
    let (session, before) = fixture.run();
    let after = fixture.resume(session, Some("and now this"));
    let entries = before.conversation.entries();
    assert_eq!(&after.conversation.entries()[..entries.len()], entries);
    let more = &after.conversation.entries()[entries.len()];
    assert_eq!(more.item, ConversationItem::user(MessageOrigin::Task, "and now this"));
    assert_eq!(fixture.command_log(), ["ran"]);
    assert!(after.state.run().model_calls > before.state.run().model_calls);
    assert!(after.state.run().now > before.state.run().now);
    replay_and_verify(&fixture, session);
}

#[test]
fn a_completed_session_without_a_new_message_stays_as_it_is() {
    let fixture = SessionFixture::new();
    let (session, before) = fixture.run();
    let journal = fs::read(fixture.journal(session)).unwrap();
    let again = fixture.resume(session, None);
    assert_eq!(again, before);
    assert_eq!(fs::read(fixture.journal(session)).unwrap(), journal);
    let message = QueuedMessage::new(MessageKind::Steering, "one more thing");
    let running = fixture.reopen(session);
    fixture.store.send(session, &message).unwrap();
    drop(running);
    let result = fixture.resume(session, None);
    assert!(result.state.run().model_calls > before.state.run().model_calls);
    replay_and_verify(&fixture, session);
}

#[test]
fn a_prompt_outlives_the_process_that_took_it() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    drop(fixture.reopen(session).resume(fixture.resume_options(Some("and now this"))).unwrap());
    let machine = fixture.resume(session, None);
    let mut contains = messages_to_model(&machine);
    assert_eq!(contains.pop(), Some((MessageOrigin::Task, "and now this")));
    assert_eq!(fs::read_dir(fixture.session_folder(session).join("mail")).unwrap().count(), 0);
}

/// Fault S14.
#[test]
fn the_model_learns_once_of_files_changed_by_others() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    fs::write(fixture.workspace().join("a.txt"), "mine").unwrap();
    let opened = fixture.reopen(session);
    let at = opened.history.at;
    let ResumedSession { journal, machine, output, workspace_changes: drift, .. } =
        opened.resume(fixture.resume_options(Some("go"))).unwrap();
    assert_eq!(drift, [WorkspaceChange::Files(vec!["a.txt".to_owned()])]);
    let machine = fixture.drive(journal, machine, output, at);
    let (origin, text) = messages_to_model(&machine)[1];
    assert_eq!(origin, MessageOrigin::System);
    assert!(text.contains("have changed since this session wrote them: a.txt."), "{text}");
    let machine = fixture.resume(session, Some("go on"));
    assert_eq!(
        messages_to_model(&machine)
            .iter()
            .filter(|(origin, _)| *origin == MessageOrigin::System)
            .count(),
        1
    );
    replay_and_verify(&fixture, session);
}

/// Fault S14.
#[test]
fn a_missing_workspace_ends_a_resume_before_any_effect() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let how = fixture.resume_options(None);
    fs::remove_dir_all(fixture.workspace()).unwrap();
    let length = fs::metadata(fixture.journal(session)).unwrap().len();
    let error = fixture.reopen(session).resume(how).unwrap_err();
    assert!(matches!(error, JournalError::NoWorkspace(_)), "{error}");
    assert_eq!(fs::metadata(fixture.journal(session)).unwrap().len(), length);
    assert!(WorkspaceIdentity::inspect(&fixture.workspace()).is_err());
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
pub(super) fn interrupted_session(fixture: &SessionFixture) -> SessionId {
    let (journal, machine, output) = fixture.begin();
    let session = journal.session();
    let participants = Participants { model: endless_model(), ..Participants::new(journal) };
    let machine =
        fixture.drive_with_inbox(participants, machine, output, RunTime::START, |inbox| {
            Box::new(InterruptingObserver(inbox))
        });
    assert_eq!(reason(&machine), Some(StopReason::UserInterrupt(Signal::Interrupt)));
    session
}

/// Fault G1.
#[test]
fn the_partial_reply_of_an_interrupted_call_is_recorded_and_not_part_of_the_history() {
    let fixture = SessionFixture::new();
    let session = interrupted_session(&fixture);
    let mut partial = None;
    let replayed = fixture.store.replay(session, |_, stored, _| {
        if let StoredContent::Partial(found) = &stored.content {
            partial = Some(found.text.clone());
        }
    });
    assert_eq!(partial.as_deref(), Some("I was about to"));
    assert_eq!(count_replies(replayed.unwrap().0.machine.conversation.entries()), 0);
    let machine = fixture.resume(session, None);
    assert_eq!(reason(&machine), Some(StopReason::LlmDone));
    replay_and_verify(&fixture, session);
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
    let fixture = SessionFixture::new();
    fs::write(fixture.workspace().join("note"), "n").unwrap();
    let (journal, machine, output) = fixture.begin();
    let session = journal.session();
    let store = fixture.store.clone();
    let message = move |kind, text: &str| {
        store.send(session, &QueuedMessage::new(kind, text)).unwrap();
    };
    // While the first call is prepared, a steering message comes; before the last one, a follow-up.
    let send = move |turn| match turn {
        0 => message(MessageKind::Steering, "to the left"),
        1 => message(MessageKind::FollowUp, "and then this"),
        _ => {}
    };
    let participants = Participants { model: observed_model(send), ..Participants::new(journal) };
    let machine = fixture.drive_with(participants, machine, output, RunTime::START);
    assert_eq!(
        messages_to_model(&machine),
        [
            (MessageOrigin::Task, "do it"),
            (MessageOrigin::Steering, "[STEERING] to the left"),
            (MessageOrigin::FollowUp, "and then this"),
        ]
    );
    assert_eq!(fs::read_dir(fixture.session_folder(session).join("mail")).unwrap().count(), 0);
    let mut messages = 0;
    fixture.store.replay(session, |_, stored, _| messages += stored.message_ids.len()).unwrap();
    assert_eq!(messages, 2);
    replay_and_verify(&fixture, session);
}

/// A follow-up that this run can't take any more is not lost.
#[test]
fn a_follow_up_beyond_the_limit_waits_for_the_next_run() {
    let fixture = SessionFixture::new();
    let mut rules = super::fixture::rules();
    rules.bounds.follow_ups = 1;
    let (journal, machine, output) = fixture.try_begin_by(rules).unwrap();
    let session = journal.session();
    for text in ["once more", "and again"] {
        let message = QueuedMessage::new(MessageKind::FollowUp, text);
        fixture.store.send(session, &message).unwrap();
    }
    let machine = fixture.drive(journal, machine, output, RunTime::START);
    let contains = |machine: &Machine, text: &str| {
        machine
            .conversation
            .entries()
            .iter()
            .any(|e| e.item == ConversationItem::user(MessageOrigin::FollowUp, text))
    };
    assert!(contains(&machine, "once more") && !contains(&machine, "and again"));
    let machine = fixture.resume(session, None);
    assert!(contains(&machine, "and again"));
    replay_and_verify(&fixture, session);
}
