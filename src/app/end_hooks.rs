//! What comes after a run, and how long it may take.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::hooks::{HookInput, Hooks};
use crate::machine::{Machine, State};
use crate::port::{CancelRegistration, CancellationToken, Clock, HookPoint};
use crate::runner;

/// Until when everything is to be over that comes after a run; none for as long as it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunDeadline(Option<Instant>);

/// How long hooks may still take when the time of their run is over.
const HOOK_OVERTIME: Duration = Duration::from_millis(500);

/// How long their commands may then take to end. What has not ended is killed when this process is gone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

impl RunDeadline {
    /// Returns until when a run may last that has got so far by this clock.
    pub(super) fn for_run(fold: &Machine, clock: &dyn Clock) -> Self {
        let run = fold.state.run();
        let left =
            run.rules.limits.timeout.map(|most| run.started_at.after(most).since(clock.now()));
        Self(left.and_then(|left| Instant::now().checked_add(left.into())))
    }

    /// Returns how much time is left; none for as much as anybody wants.
    pub fn remaining(self) -> Option<Duration> {
        self.0.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

/// Hooks that are told that the run is over.
pub(super) struct EndHooks {
    cancel: CancellationToken,
    /// Disconnected when all of them have been told.
    finished: mpsc::Receiver<()>,
    _cancel_on_interrupt: Option<CancelRegistration>,
}

/// Tells the hooks that the run is over, on a thread of their own, until they have heard it or the user is `asking` for the
/// end. They can't change that. Returns none when nobody wants to know.
pub(super) fn start_end_hooks(
    hooks: &Arc<Hooks>,
    fold: &Machine,
    asking: &CancellationToken,
) -> Option<EndHooks> {
    let points = [HookPoint::OnError, HookPoint::SessionEnd];
    let State::Done(done) = &fold.state else { return None };
    if !points.into_iter().any(|point| hooks.has_hooks_at(point)) {
        return None;
    }
    let outcome = &done.outcome;
    let error = outcome.error.clone().map(|message| HookInput::OnError { fault: None, message });
    let end = HookInput::SessionEnd {
        status: outcome.reason.status().name().into(),
        stop_reason: outcome.reason.name().into(),
        output: outcome.output.clone().unwrap_or_default(),
        steps: done.run.steps,
    };
    let (telling, told) = mpsc::channel();
    let (hooks, cancel) = (Arc::clone(hooks), CancellationToken::new());
    let scope = runner::real_time_context(cancel.clone());
    let started = thread::Builder::new().name("session-end".to_owned()).spawn(move || {
        for occasion in error.into_iter().chain([end]) {
            hooks.run(occasion, &scope);
        }
        drop::<mpsc::Sender<()>>(telling);
    });
    if let Err(error) = started {
        log::warn!("no hook is told that the run is over: {error}");
        return None;
    }
    // What has ended the run was meant for the run.
    let is_new = !asking.is_cancelled();
    let hurried = cancel.clone();
    let hurry = is_new.then(|| asking.on_cancel(move || hurried.cancel()));
    Some(EndHooks { cancel, finished: told, _cancel_on_interrupt: hurry })
}

impl EndHooks {
    /// Waits until they have been told, but not much longer than the run may last.
    pub(super) fn wait(self, ending: RunDeadline) {
        let Self { cancel, finished: told, .. } = &self;
        let Some(left) = ending.remaining() else {
            let _ = told.recv();
            return;
        };
        if told.recv_timeout(left + HOOK_OVERTIME) == Err(mpsc::RecvTimeoutError::Timeout) {
            log::warn!("the time of the run is over before all hooks of its end are");
            cancel.cancel();
            let _ = told.recv_timeout(SHUTDOWN_TIMEOUT);
        }
    }
}
