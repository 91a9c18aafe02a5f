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
/// Text that arrives is not written at once: until its reply is complete, it may be the answer, a remark before a
/// tool call, or a part of a discarded attempt.
pub struct TextSink {
    writer: BackgroundWriter<Vec<u8>>,
    destination: AnswerDestination,
    /// The text of the newest model call so far.
    partial_text: String,
}

/// Where the answer appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerDestination {
    /// A pipe or a file, with control characters escaped: it may end on a terminal.
    NonTerminal,
    /// A terminal, with control characters escaped.
    Terminal,
    /// A terminal on which the log has shown the text while it arrived; it is not repeated.
    SharedTerminal,
}

impl TextSink {
    /// Returns a sink that writes here.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
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

    fn finish(self: Box<Self>, timeout: FinishTimeout) -> Result<(), OutputError> {
        self.writer.finish(timeout)
    }
}
