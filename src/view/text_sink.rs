//! The final answer as text, and nothing else.

use std::io::{self, Write};

use super::background_writer::{BackgroundWriter, FinishTimeout, OutputError, PlainTarget};
use super::public::{PublicEvent, PublicEventKind};
use super::result::RunResult;
use super::sanitize;
use super::sink::ReportSink;
use crate::port::Disconnected;

/// Writes the final answer.
///
/// Text that arrives while the model writes does not go here: until its reply is complete, nobody knows whether it is
/// the answer, a remark before a tool call, or half of an attempt that will not count.
pub struct TextSink {
    writer: BackgroundWriter<Vec<u8>>,
    destination: AnswerDestination,
    /// What the newest model call has said so far.
    partial_text: String,
}

/// Where the answer appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerDestination {
    /// In a pipe or a file, with the characters that drive a terminal shown by their numbers: it may end on one.
    NonTerminal,
    /// On a terminal, made harmless.
    Terminal,
    /// On a terminal on which the log has shown all text while it arrived; it does not appear twice.
    SharedTerminal,
}

impl TextSink {
    /// Returns an output that writes here.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub fn new(out: impl Write + Send + 'static, place: AnswerDestination) -> io::Result<Self> {
        let writer = BackgroundWriter::start("answer", PlainTarget(out))?;
        Ok(Self { writer, destination: place, partial_text: String::new() })
    }
}

impl ReportSink for TextSink {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        match &event.kind {
            PublicEventKind::ApiCallStart(_) => self.partial_text.clear(),
            PublicEventKind::TextDelta(delta) => self.partial_text.push_str(&delta.text),
            _ => {}
        }
        Ok(())
    }

    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        let mut text = match self.destination {
            AnswerDestination::SharedTerminal if *self.partial_text == *result.output => {
                return Ok(());
            }
            AnswerDestination::SharedTerminal | AnswerDestination::Terminal => {
                sanitize::multiline(&result.output)
            }
            AnswerDestination::NonTerminal => sanitize::for_pipe(&result.output),
        }
        .into_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        self.writer.write(text.into_bytes())
    }

    fn finish(self: Box<Self>, patience: FinishTimeout) -> Result<(), OutputError> {
        self.writer.finish(patience)
    }
}
