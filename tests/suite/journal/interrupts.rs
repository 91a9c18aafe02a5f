//! An interrupt in every state: the run ends with the signal's exit code, and the session can be resumed.

use std::time::{Duration, Instant};

use architect::journal::SessionId;
use architect::machine::{Event, Machine, StateKind, StopReason};
use architect::port::{Disconnected, Model, Observer, RunEvent};
use architect::runner::{DriverInput, DriverInputSender};
use architect::types::{FaultKind, RunRules, RunTime, Signal};

use crate::kit::model::{FakeCall, model};

use super::fixture::{Participants, SessionFixture, rules};
use super::interrupted_effects::{RequestCounts, fixture, narrow, reading_model, short};
use super::resume::{reason, replay_and_verify};

/// Sends a signal as soon as a state is entered.
struct InterruptInState {
    inbox: DriverInputSender,
    signal: Signal,
    state: StateKind,
}

impl Observer for InterruptInState {
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        let machine = match seen {
            RunEvent::Started { machine, .. } | RunEvent::Handled { machine, .. } => machine,
            RunEvent::ReplyDelta { .. } | RunEvent::Notice { .. } | RunEvent::Ended { .. } => {
                return Ok(());
            }
        };
        if machine.state.kind() == self.state {
            let event = Event::Interrupt { signal: self.signal };
            self.inbox.send(DriverInput::Event(event));
        }
        Ok(())
    }
}

fn stopped(
    fixture: &SessionFixture,
    rules: RunRules,
    model: Box<dyn Model>,
    state: StateKind,
    signal: Signal,
) -> (SessionId, Machine) {
    let (journal, machine, output) = fixture.try_begin_by(rules).unwrap();
    let session = journal.session();
    let participants = Participants { model, ..Participants::new(journal) };
    let machine =
        fixture.drive_with_inbox(participants, machine, output, RunTime::START, |inbox| {
            Box::new(InterruptInState { inbox, signal, state })
        });
    (session, machine)
}

/// Faults G2, G3, G5 and G6.
#[test]
fn a_run_can_be_interrupted_in_every_state() {
    let states = [
        (StateKind::Preparing, rules()),
        (StateKind::CallingSending, rules()),
        (StateKind::CallingWaiting, rules()),
        (StateKind::CallingChecking, rules()),
        (StateKind::Executing, rules()),
        (StateKind::CompactingSending, narrow()),
        (StateKind::ClosingPreparing, short()),
        (StateKind::ClosingSending, short()),
    ];
    let signals = [(Signal::Interrupt, 130), (Signal::Terminate, 143), (Signal::Hangup, 129)];
    for (state, rules) in states {
        for (signal, code) in signals {
            let fixture = fixture();
            let model: Box<dyn Model> = match state {
                StateKind::CallingWaiting => model(|_| FakeCall::failing(FaultKind::Server)),
                _ => reading_model(&RequestCounts::default()),
            };
            let begun = Instant::now();
            let (session, machine) = stopped(&fixture, rules.clone(), model, state, signal);
            let case = format!("{} {signal:?}", state.as_str());
            assert!(begun.elapsed() < Duration::from_secs(10), "{case}");
            assert_eq!(reason(&machine), Some(StopReason::UserInterrupt(signal)), "{case}");
            assert_eq!(reason(&machine).unwrap().exit_code(), code, "{case}");
            let mut met = None;
            let replayed = fixture.store.replay(session, |_, stored, replayed| {
                if stored.content.name() == "interrupt" {
                    met = Some(replayed.fingerprint.state);
                }
            });
            assert_eq!(replayed.unwrap().0.machine, machine, "{case}");
            // Without hooks a call is prepared at once, before an interrupt can come.
            let is_instant = matches!(state, StateKind::Preparing | StateKind::ClosingPreparing);
            assert!(met == Some(state) || is_instant && met.is_some(), "{case}: {met:?}");
            replay_and_verify(&fixture, session);
            let machine = fixture.resume(session, None);
            assert_eq!(reason(&machine), Some(StopReason::LlmDone), "{case}");
        }
    }
}
