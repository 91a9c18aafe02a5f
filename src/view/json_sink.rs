//! Outputs for programs: `--json`, one document at the end of the run, and `stream-json`, an event per line.

use std::io::{self, Write};

use serde::Serialize;

use super::background_writer::{BackgroundWriter, FinishTimeout, OutputError, PlainTarget};
use super::jsonl;
use super::public::PublicEvent;
use super::result::RunResult;
use super::sink::ReportSink;
use crate::port::Disconnected;

/// Writes the result document and nothing else.
pub struct JsonSink(BackgroundWriter<Vec<u8>>);

impl JsonSink {
    /// Returns a sink that writes here.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        BackgroundWriter::start("json", PlainTarget(out)).map(Self)
    }
}

impl ReportSink for JsonSink {
    fn on_event(&mut self, _: &PublicEvent) -> Result<(), Disconnected> {
        Ok(())
    }

    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        self.0.write(jsonl::to_line(result).map_err(|_| Disconnected)?)
    }

    fn finish(self: Box<Self>, timeout: FinishTimeout) -> Result<(), OutputError> {
        self.0.finish(timeout)
    }
}

/// Writes each event on a line of its own, and the result on the last one.
pub struct StreamJsonSink(BackgroundWriter<Vec<u8>>);

/// The last line.
#[derive(Serialize)]
struct ResultLine<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    result: &'a RunResult,
}

impl StreamJsonSink {
    /// Returns a sink that writes here.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        BackgroundWriter::start("stream", PlainTarget(out)).map(Self)
    }

    /// Returns the last line alone, for a run that did not start.
    ///
    /// # Errors
    ///
    /// Fails for a result that JSON cannot express, which does not occur.
    pub fn result_line(result: &RunResult) -> Result<Vec<u8>, serde_json::Error> {
        jsonl::to_line(&ResultLine { r#type: "result", result })
    }
}

impl ReportSink for StreamJsonSink {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        self.0.write(jsonl::to_line(event).map_err(|_| Disconnected)?)
    }

    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        self.0.write(Self::result_line(result).map_err(|_| Disconnected)?)
    }

    fn finish(self: Box<Self>, timeout: FinishTimeout) -> Result<(), OutputError> {
        self.0.finish(timeout)
    }
}
