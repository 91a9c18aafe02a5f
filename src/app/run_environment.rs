//! The environment of a run: that of the command, or one that the caller provides.

use std::sync::Arc;

use super::error::AppError;
use super::run_interrupts::RunInterrupts;
use crate::machine::{Event, StopReason};
use crate::port::{CancelRegistration, CancellationToken};
use crate::runner::{DriverInput, Executor, Ports, SystemClock, ThreadExecutor, add_run};
use crate::types::RunTime;
use crate::view::Reporter;

/// The environment of a run. All other code of a run is the same in each environment.
///
/// A caller provides its own environment for a simulation, or with the executor of a program that embeds the agent. In
/// that case, the run does not receive signals of the system.
pub struct RunEnvironment {
    /// Executes the run's effects. Its clock must start at the time at which the session ended.
    pub executor: Box<dyn Executor>,
    /// The clock of the sub-agents of the run.
    pub subagent_clock: SubagentClock,
    /// Replaces ports: the model, the steering queue, the observer.
    pub ports: PortsOverride,
}

/// Replaces ports of a run.
pub type PortsOverride = Box<dyn FnOnce(Ports) -> Ports>;

/// The clock of a sub-agent's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubagentClock {
    /// The system's clock; effects run on threads.
    Real,
    /// A simulated clock; effects run inline.
    Simulated,
}

impl RunEnvironment {
    /// Returns the environment of the command: threads, the system's clock, and the signals. The run begins at `at` and
    /// runs at most `parallel` tools at a time. The first signal cancels `stopped`, even before the run has begun.
    pub(super) fn real(
        at: RunTime,
        parallel: u32,
        reporter: &Reporter,
        stopped: &CancellationToken,
    ) -> Result<Self, AppError> {
        let executor = ThreadExecutor::new(Arc::new(SystemClock::resume(at)), parallel);
        let (stopped, shown, last) = (stopped.clone(), reporter.clone(), reporter.clone());
        let on_first = move |signal| {
            stopped.cancel();
            shown.on_signal(signal);
        };
        let on_second = move |signal| last.report_shutdown(StopReason::UserInterrupt(signal));
        add_run(executor.inbox(), on_first, on_second)
            .map_err(|error| AppError::system_error("listen to signals", &error))?;
        Ok(Self::with_threads(executor))
    }

    /// Returns the environment of one of several runs of the command, which its caller interrupts as long as the
    /// registration exists.
    pub(super) fn interrupted_by(
        interrupts: &RunInterrupts,
        at: RunTime,
        parallel: u32,
        stopped: &CancellationToken,
    ) -> (Self, CancelRegistration) {
        let executor = ThreadExecutor::new(Arc::new(SystemClock::resume(at)), parallel);
        let (inbox, stopped) = (executor.inbox(), stopped.clone());
        let registration = interrupts.on_interrupt(move |signal| {
            stopped.cancel();
            inbox.send(DriverInput::Event(Event::Interrupt { signal }));
        });
        (Self::with_threads(executor), registration)
    }

    fn with_threads(executor: ThreadExecutor) -> Self {
        let (executor, ports) = (Box::new(executor), Box::new(|ports| ports));
        Self { executor, subagent_clock: SubagentClock::Real, ports }
    }
}
