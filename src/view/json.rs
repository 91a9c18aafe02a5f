//! `--json`: one document, when all is over.

use std::io::{self, Write};

use super::jsonl;
use super::output::Output;
use super::public::PublicEvent;
use super::result::RunResult;
use super::writer::{Lost, Patience, Plain, Writer};
use crate::port::Gone;

/// Writes the result document and nothing else.
pub struct Json(Writer<Vec<u8>>);

impl Json {
    /// Returns an output that writes here.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        Writer::start("json", Plain(out)).map(Self)
    }
}

impl Output for Json {
    fn event(&mut self, _: &PublicEvent) -> Result<(), Gone> {
        Ok(())
    }

    fn result(&mut self, result: &RunResult) -> Result<(), Gone> {
        self.0.put(jsonl::line(result).map_err(|_| Gone)?)
    }

    fn finish(self: Box<Self>, patience: Patience) -> Result<(), Lost> {
        self.0.finish(patience)
    }
}
