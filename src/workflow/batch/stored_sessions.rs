//! Sessions of a batch, for the coordination.

use std::sync::Arc;

use super::batch_run::LEASE_TIME;
use super::coordination::{Charge, ChargeLimits, CoordinationSettings, SessionProbe};
use super::folder::BatchFolder;
use crate::app::DISPATCH_TOOL;
use crate::journal::{SessionId, SessionStore};
use crate::machine::{RunStatus, State, StateKind, StopReason};
use crate::runner::SystemClock;

/// The sessions in the folder of a batch.
#[derive(Clone, Debug)]
pub struct StoredSessions {
    /// The store of the sessions.
    pub store: SessionStore,
    /// The folder of the batch.
    pub folder: BatchFolder,
}

impl StoredSessions {
    /// Returns the settings with which this process takes part in the batch, with these limits.
    pub fn coordination(self, limits: ChargeLimits) -> CoordinationSettings {
        CoordinationSettings {
            limits,
            lease_time: LEASE_TIME,
            durability: self.store.durability(),
            clock: Arc::new(SystemClock::start()),
            sessions: Arc::new(self),
        }
    }
}

impl SessionProbe for StoredSessions {
    fn is_running(&self, session: SessionId) -> bool {
        self.store.is_running(session).unwrap_or(false)
    }

    /// Returns the charge only if the last call is known to be the session's own and to have ended. During a call of a
    /// sub-agent, and after the end, when the answer may be evaluated, another session may have made the last call.
    /// After the end of an evaluation of the changes, no other session has.
    fn last_charge(&self, session: SessionId) -> Option<Charge> {
        let evaluation = self.folder.find_evaluation(session);
        let (mut before, mut last) = (Charge::default(), None);
        let replayed = self.store.replay(evaluation.unwrap_or(session), |history, _, _| {
            let now = Charge::from(history.machine.state.run().used);
            if now != before {
                last = Some(now.saturating_sub(before));
                before = now;
            }
        });
        let (history, _) = replayed.ok()?;
        let state = &history.machine.state;
        let is_known = match state {
            State::Executing(state) => {
                state.calls.iter().all(|call| &*call.call.name != DISPATCH_TOOL)
            }
            State::Done(_) => {
                let is_answered = |reason: StopReason| reason.status() == RunStatus::Success;
                evaluation.is_some() && state.outcome().is_some_and(|it| is_answered(it.reason))
            }
            state => matches!(state.kind(), StateKind::Preparing | StateKind::CallingChecking),
        };
        last.filter(|_| is_known)
    }
}
