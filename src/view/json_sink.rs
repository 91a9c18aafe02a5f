//! `--json`: one document, at the end of the run.

use std::io::{self, Write};

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
