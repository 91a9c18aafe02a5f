//! Somebody to whom a run is told.

use crate::model::EffectId;
use crate::port::Gone;

use super::public::PublicEvent;
use super::result::RunResult;
use super::writer::{Lost, Patience};

/// Somebody to whom a run is told: a log, a stream, a document.
pub trait Output: Send {
    /// Takes an event in.
    ///
    /// # Errors
    ///
    /// Fails when nobody reads any more; the run then ends.
    fn event(&mut self, event: &PublicEvent) -> Result<(), Gone>;

    /// Takes in how far a call has come; the newest counts.
    fn progress(&mut self, call: EffectId, text: &str) {
        let _ = (call, text);
    }

    /// Takes the result in; nothing comes after it.
    ///
    /// # Errors
    ///
    /// Fails when nobody reads any more.
    fn result(&mut self, result: &RunResult) -> Result<(), Gone>;

    /// Waits until all of it is written.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written, or not in time.
    fn finish(self: Box<Self>, patience: Patience) -> Result<(), Lost>;
}

/// An output that no run ends for: a log that cannot be written is a pity.
pub struct Optional<O> {
    output: O,
    what: &'static str,
    is_lost: bool,
}

impl<O: Output> Optional<O> {
    /// Makes an output optional; `what` names it in the warning, should it be lost.
    pub fn new(output: O, what: &'static str) -> Self {
        Self { output, what, is_lost: false }
    }

    fn note(&mut self, done: Result<(), Gone>) {
        if done.is_err() && !std::mem::replace(&mut self.is_lost, true) {
            log::warn!("the {} can't be written any more", self.what);
        }
    }
}

impl<O: Output> Output for Optional<O> {
    fn event(&mut self, event: &PublicEvent) -> Result<(), Gone> {
        if !self.is_lost {
            let done = self.output.event(event);
            self.note(done);
        }
        Ok(())
    }

    fn progress(&mut self, call: EffectId, text: &str) {
        self.output.progress(call, text);
    }

    fn result(&mut self, result: &RunResult) -> Result<(), Gone> {
        if !self.is_lost {
            let done = self.output.result(result);
            self.note(done);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, patience: Patience) -> Result<(), Lost> {
        let Self { output, what, is_lost } = *self;
        match Box::new(output).finish(patience) {
            Err(lost) if !is_lost => log::warn!("the {what} is not complete: {lost}"),
            Err(_) | Ok(()) => {}
        }
        Ok(())
    }
}
