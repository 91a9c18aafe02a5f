//! Where a run takes place: in the world, or on a stage that looks like it.

use std::sync::Arc;

use super::error::AppError;
use super::run::{FinishedRun, RunIo, RunRequest};
use super::run_setup::RunSetup;
use super::subagents::SubagentClock;
use crate::machine::StopReason;
use crate::model::RunTime;
use crate::port::{CancellationToken, Model};
use crate::runner::{Executor, Ports, SystemClock, ThreadExecutor, add_run};
use crate::view::Reporter;

/// What is different between a run in the world and a rehearsal of it. Everything else is the same code.
pub(super) trait Environment {
    /// Where the work is done.
    type Executor: Executor;

    /// Returns the model that is asked in place of this one.
    fn wrap_model(&mut self, model: Box<dyn Model>) -> Box<dyn Model>;

    /// Returns by which clock runs within the run go.
    fn subagent_clock(&self) -> SubagentClock;

    /// Returns the hands of a run that stands at this time, with so many tools at a time. `asked` is cancelled when
    /// somebody wants the run to end, be it under way already or not.
    fn executor(
        self,
        at: RunTime,
        parallel: u32,
        asked: &CancellationToken,
    ) -> Result<(Self::Executor, PortsOverride), AppError>;
}

/// Replaces ports of a run.
pub(super) type PortsOverride = Box<dyn FnOnce(Ports) -> Ports>;

/// The world: threads, real time, signals of the system.
pub(super) struct RealEnvironment(pub(super) Reporter);

impl Environment for RealEnvironment {
    type Executor = ThreadExecutor;

    fn wrap_model(&mut self, model: Box<dyn Model>) -> Box<dyn Model> {
        model
    }

    fn subagent_clock(&self) -> SubagentClock {
        SubagentClock::Real
    }

    fn executor(
        self,
        at: RunTime,
        parallel: u32,
        asked: &CancellationToken,
    ) -> Result<(ThreadExecutor, PortsOverride), AppError> {
        let hands = ThreadExecutor::new(Arc::new(SystemClock::resume(at)), parallel);
        let Self(show) = self;
        let (asked, shown) = (asked.clone(), show.clone());
        let first = move |signal| {
            asked.cancel();
            shown.on_signal(signal);
        };
        let farewell = move |signal| show.report_shutdown(StopReason::UserInterrupt(signal));
        add_run(hands.inbox(), first, farewell)
            .map_err(|error| AppError::system_error("listen to signals", &error))?;
        Ok((hands, Box::new(|ports| ports)))
    }
}

/// Puts a witness around a model.
pub type ModelWrapper = dyn Fn(Box<dyn Model>) -> Box<dyn Model>;

/// A stage: the real set-up with other hands, a model that is listened to, and ports of one's own.
pub struct SimulatedEnvironment<H> {
    /// Where the work is done, and by which clock. It has to stand where the session stands.
    pub executor: H,
    /// Returns the model that is asked in place of the chosen one: a witness around it, say.
    pub model: Box<ModelWrapper>,
    /// Replaces other ports: the mailbox, say.
    pub ports: Box<dyn FnOnce(Ports) -> Ports>,
    /// By which clock runs within the run go.
    pub subagent_clock: SubagentClock,
}

impl<H: Executor> Environment for SimulatedEnvironment<H> {
    type Executor = H;

    fn wrap_model(&mut self, model: Box<dyn Model>) -> Box<dyn Model> {
        (self.model)(model)
    }

    fn subagent_clock(&self) -> SubagentClock {
        self.subagent_clock
    }

    fn executor(
        self,
        _: RunTime,
        _: u32,
        _: &CancellationToken,
    ) -> Result<(H, PortsOverride), AppError> {
        Ok((self.executor, self.ports))
    }
}

impl RunSetup {
    /// Drives a run to its end on a stage of one's own. Signals of the system are not listened to.
    ///
    /// # Errors
    ///
    /// Fails when the run could not begin.
    pub fn run_simulated<H: Executor>(
        &self,
        order: RunRequest,
        stage: RunIo,
        rehearsal: SimulatedEnvironment<H>,
    ) -> Result<FinishedRun, AppError> {
        self.drive(order, stage, rehearsal, None)
    }
}
