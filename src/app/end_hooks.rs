//! The hooks after a run, and their time limit.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::hooks::{HookInput, Hooks};
use crate::machine::{Machine, State};
use crate::port::{CancellationToken, Clock, HookOutcome, HookPoint};
use crate::runner;

/// The time by which everything after a run must end; unlimited if the run has no time limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunDeadline(Option<Instant>);

/// The time that hooks get beyond the time limit of the run.
const HOOK_OVERTIME: Duration = Duration::from_millis(500);

/// The time that the hooks' commands get to end after that. The supervisor kills the rest when this process ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

impl RunDeadline {
    /// Returns the deadline of a run; `clock` is the run's clock at its end.
    pub(super) fn for_run(machine: &Machine, clock: &dyn Clock) -> Self {
        let run = machine.state.run();
        let left =
            run.rules.limits.timeout.map(|most| run.started_at.after(most).since(clock.now()));
        Self(left.and_then(|left| Instant::now().checked_add(left.into())))
    }

    /// Returns the remaining time; `None` if it is unlimited.
    pub fn remaining(self) -> Option<Duration> {
        self.0.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

/// Runs the hooks at the end of a run on a separate thread, and `meanwhile` on this one. Returns when the hooks have
/// ended or `interrupt` is cancelled, and not much later than the deadline. The hooks can't change the result.
pub(super) fn run_end_hooks(
    hooks: &Arc<Hooks>,
    machine: &Machine,
    interrupt: &CancellationToken,
    deadline: RunDeadline,
    meanwhile: impl FnOnce(),
) {
    let points = [HookPoint::OnError, HookPoint::SessionEnd];
    let State::Done(done) = &machine.state else { return meanwhile() };
    if !points.into_iter().any(|point| hooks.has_hooks_at(point)) {
        return meanwhile();
    }
    let outcome = &done.outcome;
    let error = outcome.error.clone().map(|message| HookInput::OnError { fault: None, message });
    let end = HookInput::SessionEnd {
        status: outcome.reason.status().as_str().into(),
        stop_reason: outcome.reason.name().into(),
        output: outcome.output.clone().unwrap_or_default(),
        steps: done.run.steps,
    };
    // The channel closes when all hooks have ended.
    let (sender, finished) = mpsc::channel::<()>();
    let (hooks, cancel) = (Arc::clone(hooks), CancellationToken::new());
    let scope = runner::real_time_context(cancel.clone());
    let started = thread::Builder::new().name("session-end".to_owned()).spawn(move || {
        for input in error.into_iter().chain([end]) {
            let point = input.point().as_str();
            for ran in hooks.run(input, &scope).runs {
                // No more events are sent, so failures are only logged.
                if ran.outcome != HookOutcome::Passed {
                    let why = ran.message.as_deref().unwrap_or_default();
                    log::warn!("the hook `{}` at {point} did not pass: {why}", ran.name);
                }
            }
        }
        drop(sender);
    });
    if let Err(error) = started {
        log::warn!("the hooks at the end of the run were not started: {error}");
        return meanwhile();
    }
    // A signal that has already ended the run does not end the hooks.
    let cancelled = cancel.clone();
    let _registration =
        (!interrupt.is_cancelled()).then(|| interrupt.on_cancel(move || cancelled.cancel()));
    meanwhile();
    let Some(left) = deadline.remaining() else {
        let _ = finished.recv();
        return;
    };
    if finished.recv_timeout(left + HOOK_OVERTIME) == Err(mpsc::RecvTimeoutError::Timeout) {
        log::warn!("the time of the run is over before all hooks of its end are");
        cancel.cancel();
        let _ = finished.recv_timeout(SHUTDOWN_TIMEOUT);
    }
}
