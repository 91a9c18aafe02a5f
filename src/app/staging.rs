//! Where a run takes place: in the world, or on a stage that looks like it.

use std::sync::Arc;

use super::error::AppError;
use super::run::{Ended, Order, Stage};
use super::setup::Setup;
use super::subagents::Nesting;
use crate::machine::StopReason;
use crate::model::Time;
use crate::port::{Cancel, Model};
use crate::runner::{Hands, Ports, SystemClock, Threads, listen};
use crate::view::Show;

/// What is different between a run in the world and a rehearsal of it. Everything else is the same code.
pub(super) trait Staging {
    /// Where the work is done.
    type Hands: Hands;

    /// Returns the model that is asked in place of this one.
    fn model(&mut self, model: Box<dyn Model>) -> Box<dyn Model>;

    /// Returns by which clock runs within the run go.
    fn nesting(&self) -> Nesting;

    /// Returns the hands of a run that stands at this time, with so many tools at a time. `asked` is cancelled when
    /// somebody wants the run to end, be it under way already or not.
    fn hands(
        self,
        at: Time,
        parallel: u32,
        asked: &Cancel,
    ) -> Result<(Self::Hands, Around), AppError>;
}

/// Replaces ports of a run.
pub(super) type Around = Box<dyn FnOnce(Ports) -> Ports>;

/// The world: threads, real time, signals of the system.
pub(super) struct Live(pub(super) Show);

impl Staging for Live {
    type Hands = Threads;

    fn model(&mut self, model: Box<dyn Model>) -> Box<dyn Model> {
        model
    }

    fn nesting(&self) -> Nesting {
        Nesting::Live
    }

    fn hands(self, at: Time, parallel: u32, asked: &Cancel) -> Result<(Threads, Around), AppError> {
        let hands = Threads::new(Arc::new(SystemClock::resume(at)), parallel);
        let Self(show) = self;
        let (asked, shown) = (asked.clone(), show.clone());
        let first = move |signal| {
            asked.cancel();
            shown.signalled(signal);
        };
        let farewell = move |signal| show.farewell(StopReason::UserInterrupt(signal));
        listen(hands.inbox(), first, farewell)
            .map_err(|error| AppError::system("listen to signals", &error))?;
        Ok((hands, Box::new(|ports| ports)))
    }
}

/// Puts a witness around a model.
pub type Listening = dyn Fn(Box<dyn Model>) -> Box<dyn Model>;

/// A stage: the real set-up with other hands, a model that is listened to, and ports of one's own.
pub struct Rehearsal<H> {
    /// Where the work is done, and by which clock. It has to stand where the session stands.
    pub hands: H,
    /// Returns the model that is asked in place of the chosen one: a witness around it, say.
    pub model: Box<Listening>,
    /// Replaces other ports: the mailbox, say.
    pub ports: Box<dyn FnOnce(Ports) -> Ports>,
    /// By which clock runs within the run go.
    pub nesting: Nesting,
}

impl<H: Hands> Staging for Rehearsal<H> {
    type Hands = H;

    fn model(&mut self, model: Box<dyn Model>) -> Box<dyn Model> {
        (self.model)(model)
    }

    fn nesting(&self) -> Nesting {
        self.nesting
    }

    fn hands(self, _: Time, _: u32, _: &Cancel) -> Result<(H, Around), AppError> {
        Ok((self.hands, self.ports))
    }
}

impl Setup {
    /// Drives a run to its end on a stage of one's own. Signals of the system are not listened to.
    ///
    /// # Errors
    ///
    /// Fails when the run could not begin.
    pub fn rehearse<H: Hands>(
        &self,
        order: Order,
        stage: Stage,
        rehearsal: Rehearsal<H>,
    ) -> Result<Ended, AppError> {
        self.drive(order, stage, rehearsal, None)
    }
}
