//! An interrupt in every state: the run ends with the signal's exit code, and the session can be resumed.

use std::time::{Duration, Instant};

use architect::journal::SessionId;
use architect::machine::{Event, Machine, StateKind, StopReason};
use architect::model::{FaultKind, RunRules, RunTime, Signal};
use architect::port::{Disconnected, Model, Observer, RunEvent};
use architect::runner::{DriverInput, DriverInputSender};

use crate::kit::model::{FakeCall, model};

use super::fixture::{Participants, SessionFixture, rules};
use super::interrupted_effects::{RequestCounts, narrow, reading_model, short, world};
use super::resume::{reason, replay_and_verify};

/// Sends a signal as soon as a state is entered.
struct InterruptInState {
    inbox: DriverInputSender,
    signal: Signal,
    state: StateKind,
}

impl Observer for InterruptInState {
    fn on_event(&mut self, seen: &RunEvent<'_>) -> Result<(), Disconnected> {
        let fold = match seen {
            RunEvent::Started { machine: fold, .. } | RunEvent::Handled { machine: fold, .. } => {
                fold
            }
            RunEvent::ReplyDelta { .. } | RunEvent::Notice { .. } | RunEvent::Ended { .. } => {
                return Ok(());
            }
        };
        if fold.state.kind() == self.state {
            let event = Event::Interrupt { signal: self.signal };
            self.inbox.send(DriverInput::Event(event));
        }
        Ok(())
    }
}

fn stopped(
    world: &SessionFixture,
    rules: RunRules,
    model: Box<dyn Model>,
    state: StateKind,
    signal: Signal,
) -> (SessionId, Machine) {
    let (journal, fold, outcomes) = world.try_begin_by(rules).unwrap();
    let session = journal.session();
    let cast = Participants { model, ..Participants::new(journal) };
    let fold = world.drive_with_inbox(cast, fold, outcomes, RunTime::START, |inbox| {
        Box::new(InterruptInState { inbox, signal, state })
    });
    (session, fold)
}

/// Faults G2, G3, G5 and G6.
#[test]
fn a_run_can_be_stopped_in_every_state() {
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
            let world = world();
            let model: Box<dyn Model> = match state {
                StateKind::CallingWaiting => model(|_| FakeCall::failing(FaultKind::Server)),
                _ => reading_model(&RequestCounts::default()),
            };
            let begun = Instant::now();
            let (session, fold) = stopped(&world, rules.clone(), model, state, signal);
            let case = format!("{} {signal:?}", state.name());
            assert!(begun.elapsed() < Duration::from_secs(10), "{case}");
            assert_eq!(reason(&fold), Some(StopReason::UserInterrupt(signal)), "{case}");
            assert_eq!(reason(&fold).unwrap().exit_code(), code, "{case}");
            let mut met = None;
            let replayed = world.store.replay(session, |_, stored, replayed| {
                if stored.content.name() == "interrupt" {
                    met = Some(replayed.fingerprint.state);
                }
            });
            assert_eq!(replayed.unwrap().0.machine, fold, "{case}");
            // Without hooks a call is prepared at once, before an interrupt can come.
            let is_instant = matches!(state, StateKind::Preparing | StateKind::ClosingPreparing);
            assert!(met == Some(state) || is_instant && met.is_some(), "{case}: {met:?}");
            replay_and_verify(&world, session);
            let fold = world.resume(session, None);
            assert_eq!(reason(&fold), Some(StopReason::LlmDone), "{case}");
        }
    }
}
