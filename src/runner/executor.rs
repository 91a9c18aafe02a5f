//! The hands of the driver: where its work is done, and how it hears of the result.

use std::sync::Arc;

use crate::machine::{Deadline, Event};
use crate::model::{CallAccess, CallId, EffectId, Reply, Signal, TimeSpan, UserMessage};
use crate::port::{
    AuthorizationOutcome, CancellationToken, Clock, EffectContext, EffectMessage, EffectNotice,
    PreparedCall, ReplyDelta,
};

/// Does work and brings its results.
pub trait Executor {
    /// Returns the clock that the run goes by.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Starts some work; its arrival comes later.
    fn start(&mut self, work: EffectTask);

    /// Returns the next arrival; none when the deadline passed before one came.
    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput>;

    /// Returns an arrival that is already there.
    fn try_input(&mut self) -> Option<DriverInput>;

    /// Waits until all that was started has ended, but no longer than this. Returns whether all has.
    fn wait_idle(&mut self, grace: TimeSpan) -> bool;
}

impl<E: Executor + ?Sized> Executor for Box<E> {
    fn clock(&self) -> Arc<dyn Clock> {
        (**self).clock()
    }

    fn start(&mut self, work: EffectTask) {
        (**self).start(work);
    }

    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput> {
        (**self).wait_input(deadline)
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        (**self).try_input()
    }

    fn wait_idle(&mut self, grace: TimeSpan) -> bool {
        (**self).wait_idle(grace)
    }
}

/// Something that reaches the driver.
pub enum DriverInput {
    /// An event for the machine.
    Event(Event),
    /// The model replied; its tool calls are prepared.
    Replied {
        /// The model call.
        id: EffectId,
        /// The reply.
        reply: Reply,
        /// What its calls touch.
        access: Arc<[CallAccess]>,
        /// Its calls, in their order.
        calls: Vec<Box<dyn PreparedCall>>,
    },
    /// A tool call was judged.
    Authorized {
        /// The judgement.
        id: EffectId,
        /// The call.
        call: CallId,
        /// What became of it.
        outcome: AuthorizationOutcome,
    },
    /// What comes before a model call was done.
    PreCallHooksRun {
        /// The preparation that it belongs to.
        id: EffectId,
        /// What the model is told first.
        messages: Vec<UserMessage>,
    },
    /// A part of a reply that is not complete.
    ReplyDelta {
        /// The model call.
        id: EffectId,
        /// The part.
        delta: ReplyDelta,
    },
    /// Somebody who works on an effect has something to tell.
    Notice {
        /// The effect.
        id: EffectId,
        /// What is told.
        notice: EffectNotice,
    },
}

impl DriverInput {
    /// Returns what an effect under way has said.
    pub(super) fn from_message(id: EffectId, word: EffectMessage) -> Self {
        Self::Event(match word {
            EffectMessage::UsageReported(usage, cost) => Event::UsageReported { id, usage, cost },
            EffectMessage::Abort => Event::Interrupt { signal: Signal::Interrupt },
        })
    }
}

/// A piece of work.
pub struct EffectTask {
    /// The effect that it belongs to.
    pub id: EffectId,
    /// Where it is done.
    pub thread: TaskThread,
    /// What ends it early.
    pub cancel: CancellationToken,
    /// The work itself.
    pub run: TaskBody,
    /// What arrives instead when the work could not be started, or broke down.
    pub on_failure: Box<dyn FnOnce(&str) -> DriverInput + Send>,
}

/// What a piece of work does, in its scope; what arrives before its end goes through the post.
pub type TaskBody = Box<dyn FnOnce(&EffectContext, &InputSink<'_>) -> DriverInput + Send>;

/// Brings arrivals to the driver while the work that they belong to goes on.
pub type InputSink<'a> = dyn Fn(DriverInput) + 'a;

/// Where a piece of work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskThread {
    /// On a thread of its own: a model call, a check.
    Dedicated,
    /// On the pool of the tools.
    Pool,
}
