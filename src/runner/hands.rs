//! The hands of the driver: where its work is done, and how it hears of the result.

use std::sync::Arc;

use crate::machine::{Deadline, Event};
use crate::model::{CallId, EffectId, Signal, Span, UserMessage};
use crate::port::{Cancel, Clock, Delta, Notice, Scope, Vetted, Word};

/// Does work and brings its results.
pub trait Hands {
    /// Returns the clock that the run goes by.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Starts some work; its arrival comes later.
    fn start(&mut self, work: Work);

    /// Returns the next arrival; none when the deadline passed before one came.
    fn wait(&mut self, deadline: Option<Deadline>) -> Option<Arrival>;

    /// Returns an arrival that is already there.
    fn ready(&mut self) -> Option<Arrival>;

    /// Waits until all that was started has ended, but no longer than this. Returns whether all has.
    fn settle(&mut self, grace: Span) -> bool;
}

/// Something that reaches the driver.
pub enum Arrival {
    /// An event for the machine.
    Event(Event),
    /// A tool call was judged.
    Vetted {
        /// The judgement.
        id: EffectId,
        /// The call.
        call: CallId,
        /// What became of it.
        vetted: Vetted,
    },
    /// What comes before a model call was done.
    Prelude {
        /// The preparation that it belongs to.
        id: EffectId,
        /// What the model is told first.
        messages: Vec<UserMessage>,
    },
    /// A part of a reply that is not complete.
    Delta {
        /// The model call.
        id: EffectId,
        /// The part.
        delta: Delta,
    },
    /// Somebody who works on an effect has something to tell.
    Notice {
        /// The effect.
        id: EffectId,
        /// What is told.
        notice: Notice,
    },
}

impl Arrival {
    /// Returns what an effect under way has said.
    pub(super) fn said(id: EffectId, word: Word) -> Self {
        Self::Event(match word {
            Word::Used(usage, cost) => Event::Charged { id, usage, cost },
            Word::Abort => Event::Interrupt { signal: Signal::Interrupt },
        })
    }
}

/// A piece of work.
pub struct Work {
    /// The effect that it belongs to.
    pub id: EffectId,
    /// Where it is done.
    pub lane: Lane,
    /// What ends it early.
    pub cancel: Cancel,
    /// The work itself.
    pub run: Run,
    /// What arrives instead when the work could not be started, or broke down.
    pub lost: Box<dyn FnOnce(&str) -> Arrival + Send>,
}

/// What a piece of work does, in its scope; what arrives before its end goes through the post.
pub type Run = Box<dyn FnOnce(&Scope, &Post<'_>) -> Arrival + Send>;

/// Brings arrivals to the driver while the work that they belong to goes on.
pub type Post<'a> = dyn Fn(Arrival) + 'a;

/// Where a piece of work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// On a thread of its own: a model call, a check.
    Own,
    /// On the pool of the tools.
    Pool,
}
