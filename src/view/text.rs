//! The final answer as text, and nothing else.

use std::io::{self, Write};

use super::clean;
use super::output::Output;
use super::public::{Kind, PublicEvent};
use super::result::RunResult;
use super::writer::{Lost, Patience, Plain, Writer};
use crate::port::Gone;

/// Writes the final answer.
///
/// Text that arrives while the model writes does not go here: until its reply is complete, nobody knows whether it is
/// the answer, a remark before a tool call, or half of an attempt that will not count.
pub struct Text {
    writer: Writer<Vec<u8>>,
    place: Place,
    /// What the newest model call has said so far.
    heard: String,
}

/// Where the answer appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a pipe or a file, with the characters that drive a terminal shown by their numbers: it may end on one.
    Elsewhere,
    /// On a terminal, made harmless.
    Terminal,
    /// On a terminal on which the log has shown all text while it arrived; it does not appear twice.
    SharedTerminal,
}

impl Text {
    /// Returns an output that writes here.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub fn new(out: impl Write + Send + 'static, place: Place) -> io::Result<Self> {
        let writer = Writer::start("answer", Plain(out))?;
        Ok(Self { writer, place, heard: String::new() })
    }
}

impl Output for Text {
    fn event(&mut self, event: &PublicEvent) -> Result<(), Gone> {
        match &event.kind {
            Kind::ApiCallStart(_) => self.heard.clear(),
            Kind::TextDelta(delta) => self.heard.push_str(&delta.text),
            _ => {}
        }
        Ok(())
    }

    fn result(&mut self, result: &RunResult) -> Result<(), Gone> {
        let mut text = match self.place {
            Place::SharedTerminal if *self.heard == *result.output => return Ok(()),
            Place::SharedTerminal | Place::Terminal => clean::block(&result.output),
            Place::Elsewhere => clean::piped(&result.output),
        }
        .into_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        self.writer.put(text.into_bytes())
    }

    fn finish(self: Box<Self>, patience: Patience) -> Result<(), Lost> {
        self.writer.finish(patience)
    }
}
