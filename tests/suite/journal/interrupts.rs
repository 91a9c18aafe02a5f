//! Somebody asks a run to stop, wherever it stands: it ends with the signal's exit code, and the session goes on.

use std::time::{Duration, Instant};

use architect::journal::SessionId;
use architect::machine::{Event, Fold, StateKind, StopReason};
use architect::model::{Fault, FaultKind, Rules, Signal, Time};
use architect::port::{Ask, Gone, Model, ModelCall, Observer, Seen};
use architect::runner::{Arrival, Inbox};

use super::half_done::{Reads, narrow, short, world};
use super::resume::{reason, verified};
use super::world::{Cast, World, rules};

/// Sends a signal as soon as a state is entered.
struct Stops {
    inbox: Inbox,
    signal: Signal,
    state: StateKind,
}

impl Observer for Stops {
    fn see(&mut self, seen: &Seen<'_>) -> Result<(), Gone> {
        let fold = match seen {
            Seen::Begun { fold, .. } | Seen::Event { fold, .. } => fold,
            Seen::Delta { .. } | Seen::Notice { .. } | Seen::Ended { .. } => return Ok(()),
        };
        if fold.state.kind() == self.state {
            let event = Event::Interrupt { signal: self.signal };
            self.inbox.post(Arrival::Event(event));
        }
        Ok(())
    }
}

/// A model that can't be reached.
struct Away;

impl Model for Away {
    fn prepare(&mut self, _: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        Err(Fault::new(FaultKind::Server, "come back later"))
    }
}

fn stopped(
    world: &World,
    rules: Rules,
    model: Box<dyn Model>,
    state: StateKind,
    signal: Signal,
) -> (SessionId, Fold) {
    let (journal, fold, outcomes) = world.try_begin_by(rules).unwrap();
    let session = journal.session();
    let cast = Cast { model, ..Cast::new(journal) };
    let fold = world.play_before(cast, fold, outcomes, Time::START, |inbox| {
        Box::new(Stops { inbox, signal, state })
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
                StateKind::CallingWaiting => Box::new(Away),
                _ => Box::<Reads>::default(),
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
                    met = Some(replayed.met.state);
                }
            });
            assert_eq!(replayed.unwrap().0.fold, fold, "{case}");
            // Without hooks a call is prepared on the spot, before anybody can say anything.
            let is_instant = matches!(state, StateKind::Preparing | StateKind::ClosingPreparing);
            assert!(met == Some(state) || is_instant && met.is_some(), "{case}: {met:?}");
            verified(&world, session);
            let fold = world.resume(session, None);
            assert_eq!(reason(&fold), Some(StopReason::LlmDone), "{case}");
        }
    }
}
