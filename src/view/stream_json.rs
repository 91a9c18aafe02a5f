//! `stream-json`, and the log file: an event on each line, and the result on the last one.

use std::io::{self, Write};

use serde::Serialize;

use super::jsonl;
use super::output::Output;
use super::public::PublicEvent;
use super::result::RunResult;
use super::writer::{Lost, Patience, Plain, Writer};
use crate::port::Gone;

/// Writes each event on a line of its own, and the result on the last one.
pub struct StreamJson(Writer<Vec<u8>>);

/// The last line.
#[derive(Serialize)]
struct Last<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    result: &'a RunResult,
}

impl StreamJson {
    /// Returns an output that writes here.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        Writer::start("stream", Plain(out)).map(Self)
    }

    /// Returns the last line alone, for a run that did not begin.
    ///
    /// # Errors
    ///
    /// Fails for a result that JSON cannot express; there is none.
    pub fn last(result: &RunResult) -> Result<Vec<u8>, serde_json::Error> {
        jsonl::line(&Last { r#type: "result", result })
    }
}

impl Output for StreamJson {
    fn event(&mut self, event: &PublicEvent) -> Result<(), Gone> {
        self.0.put(jsonl::line(event).map_err(|_| Gone)?)
    }

    fn result(&mut self, result: &RunResult) -> Result<(), Gone> {
        self.0.put(jsonl::line(&Last { r#type: "result", result }).map_err(|_| Gone)?)
    }

    fn finish(self: Box<Self>, patience: Patience) -> Result<(), Lost> {
        self.0.finish(patience)
    }
}
