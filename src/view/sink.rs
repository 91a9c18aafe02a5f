//! The outputs of a run.

use crate::model::EffectId;
use crate::port::Disconnected;

use super::background_writer::{FinishTimeout, OutputError};
use super::public::PublicEvent;
use super::result::RunResult;

/// An output of a run: a log, a stream, a document.
pub trait ReportSink: Send {
    /// Adds an event.
    ///
    /// # Errors
    ///
    /// Fails if the reader is gone; the run then ends.
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected>;

    /// Shows the progress of a call; the newest text replaces the others.
    fn on_progress(&mut self, call: EffectId, text: &str) {
        let _ = (call, text);
    }

    /// Writes the result; nothing follows it.
    ///
    /// # Errors
    ///
    /// Fails if the reader is gone.
    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected>;

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written, or not in time.
    fn finish(self: Box<Self>, timeout: FinishTimeout) -> Result<(), OutputError>;
}

/// An output whose failure does not end the run, such as a log file.
pub struct OptionalSink<O> {
    sink: O,
    name: &'static str,
    is_lost: bool,
}

impl<O: ReportSink> OptionalSink<O> {
    /// Makes an output optional; `what` names it in the warning if it fails.
    pub fn new(output: O, what: &'static str) -> Self {
        Self { sink: output, name: what, is_lost: false }
    }

    fn warn_if_lost(&mut self, done: Result<(), Disconnected>) {
        if done.is_err() && !std::mem::replace(&mut self.is_lost, true) {
            log::warn!("the {} can no longer be written", self.name);
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

    fn finish(self: Box<Self>, timeout: FinishTimeout) -> Result<(), OutputError> {
        let Self { sink: output, name: what, is_lost } = *self;
        match Box::new(output).finish(timeout) {
            Err(lost) if !is_lost => log::warn!("the {what} is incomplete: {lost}"),
            Err(_) | Ok(()) => {}
        }
        Ok(())
    }
}
