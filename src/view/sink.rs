//! Somebody to whom a run is told.

use crate::model::EffectId;
use crate::port::Disconnected;

use super::background_writer::{FinishTimeout, OutputError};
use super::public::PublicEvent;
use super::result::RunResult;

/// Somebody to whom a run is told: a log, a stream, a document.
pub trait ReportSink: Send {
    /// Takes an event in.
    ///
    /// # Errors
    ///
    /// Fails when nobody reads any more; the run then ends.
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected>;

    /// Takes in how far a call has come; the newest counts.
    fn on_progress(&mut self, call: EffectId, text: &str) {
        let _ = (call, text);
    }

    /// Takes the result in; nothing comes after it.
    ///
    /// # Errors
    ///
    /// Fails when nobody reads any more.
    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected>;

    /// Waits until all of it is written.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written, or not in time.
    fn finish(self: Box<Self>, patience: FinishTimeout) -> Result<(), OutputError>;
}

/// An output that no run ends for: a log that cannot be written is a pity.
pub struct OptionalSink<O> {
    sink: O,
    name: &'static str,
    is_lost: bool,
}

impl<O: ReportSink> OptionalSink<O> {
    /// Makes an output optional; `what` names it in the warning, should it be lost.
    pub fn new(output: O, what: &'static str) -> Self {
        Self { sink: output, name: what, is_lost: false }
    }

    fn warn_if_lost(&mut self, done: Result<(), Disconnected>) {
        if done.is_err() && !std::mem::replace(&mut self.is_lost, true) {
            log::warn!("the {} can't be written any more", self.name);
        }
    }
}

impl<O: ReportSink> ReportSink for OptionalSink<O> {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        if !self.is_lost {
            let done = self.sink.on_event(event);
            self.warn_if_lost(done);
        }
        Ok(())
    }

    fn on_progress(&mut self, call: EffectId, text: &str) {
        self.sink.on_progress(call, text);
    }

    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        if !self.is_lost {
            let done = self.sink.on_result(result);
            self.warn_if_lost(done);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, patience: FinishTimeout) -> Result<(), OutputError> {
        let Self { sink: output, name: what, is_lost } = *self;
        match Box::new(output).finish(patience) {
            Err(lost) if !is_lost => log::warn!("the {what} is not complete: {lost}"),
            Err(_) | Ok(()) => {}
        }
        Ok(())
    }
}
