//! The outputs of a run. For programs: one document at its end, or an event per line. For people: the answer as text.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::background_writer::{BackgroundWriter, OutputError, PlainTarget};
use super::public_events::{PublicEvent, PublicEventKind};
use super::result::RunResult;
use super::{jsonl, sanitize};
use crate::port::{Disconnected, RunEvent};
use crate::tools::ShownDiffs;
use crate::types::{CallId, EffectId, MicroUsd, Tokens};

/// What goes on during a run besides its events. It is shown, and not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveEvent<'a> {
    /// A tool call runs; its authorization is complete.
    CallRuns {
        /// The effect that runs it.
        effect: EffectId,
        /// The call.
        call: &'a CallId,
    },
    /// The progress of a long operation. A newer text replaces it.
    Progress {
        /// The effect that it belongs to.
        effect: EffectId,
        /// The current operation.
        text: &'a str,
    },
    /// The end of what a running command has printed.
    Output {
        /// The call that runs it.
        call: &'a CallId,
        /// The last lines.
        text: &'a str,
    },
    /// The change of files that a call has made, or would have made without a dry run.
    Diff {
        /// The call.
        call: &'a CallId,
        /// The change as a unified diff.
        diff: &'a str,
    },
    /// A part of the model's reasoning.
    Reasoning(&'a str),
    /// What the session has used, after an event.
    Used {
        /// The cost, if the model has a price.
        cost: Option<MicroUsd>,
        /// The context window of the model.
        window: Tokens,
    },
    /// The start of an MCP server.
    Server {
        /// Its name.
        name: &'a str,
        /// How far it is.
        state: ServerState,
    },
}

/// How far the start of a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It is being started.
    Starting,
    /// Its tools are known.
    Ready,
    /// It can't be had.
    Failed,
}

/// An output of a run: a log, a stream, a document.
pub trait ReportSink: Send {
    /// Returns an output for the run of a sub-agent that this call has dispatched; `None` if it needs none.
    fn subagent_sink(&self, _call: &CallId) -> Option<Box<dyn ReportSink>> {
        None
    }

    /// Adds an event.
    ///
    /// # Errors
    ///
    /// Fails if the reader is gone; the run then ends.
    fn on_event(&mut self, _event: &PublicEvent) -> Result<(), Disconnected> {
        Ok(())
    }

    /// Adds an event of a run that takes place beside the others, at the same time as more such runs.
    ///
    /// # Errors
    ///
    /// Fails if the reader is gone; that run then ends.
    fn on_parallel_event(&mut self, _event: &PublicEvent) -> Result<(), Disconnected> {
        Ok(())
    }

    /// Looks at an event of the driver before the public events that are made of it, for what those don't have: the
    /// model's reasoning, and when an approved call starts.
    fn on_run_event(&mut self, _event: &RunEvent<'_>) {}

    /// Shows what is going on right now. Losing some of it changes nothing.
    fn on_live(&mut self, _live: &LiveEvent<'_>) {}

    /// Returns the changes of files that it shows as diffs.
    fn shown_diffs(&self) -> ShownDiffs {
        ShownDiffs::DryRun
    }

    /// Writes the result; nothing follows it.
    ///
    /// # Errors
    ///
    /// Fails if the reader is gone.
    fn on_result(&mut self, _result: &RunResult) -> Result<(), Disconnected> {
        Ok(())
    }

    /// Waits until everything is written; without a timeout as long as it takes.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written, or not in time.
    fn finish(self: Box<Self>, _timeout: Option<Duration>) -> Result<(), OutputError> {
        Ok(())
    }
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

    fn write_unless_lost(&mut self, write: impl FnOnce(&mut O) -> Result<(), Disconnected>) {
        if !self.is_lost && write(&mut self.sink).is_err() {
            self.is_lost = true;
            log::warn!("the {} can no longer be written", self.name);
        }
    }
}

impl<O: ReportSink> ReportSink for OptionalSink<O> {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        self.write_unless_lost(|sink| sink.on_event(event));
        Ok(())
    }

    fn on_live(&mut self, live: &LiveEvent<'_>) {
        self.sink.on_live(live);
    }

    fn shown_diffs(&self) -> ShownDiffs {
        self.sink.shown_diffs()
    }

    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        self.write_unless_lost(|sink| sink.on_result(result));
        Ok(())
    }

    fn finish(self: Box<Self>, timeout: Option<Duration>) -> Result<(), OutputError> {
        let Self { sink: output, name: what, is_lost } = *self;
        match Box::new(output).finish(timeout) {
            Err(lost) if !is_lost => log::warn!("the {what} is incomplete: {lost}"),
            Err(_) | Ok(()) => {}
        }
        Ok(())
    }
}

/// Writes JSON.
pub struct JsonSink {
    writer: BackgroundWriter<Vec<u8>>,
    format: JsonFormat,
}

/// What is written as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFormat {
    /// The result document and nothing else.
    Document,
    /// Each event on a line of its own, and the result on the last one.
    Stream,
}

impl JsonFormat {
    /// Returns the line of the result; for a run that did not start, it is the only one.
    ///
    /// # Errors
    ///
    /// Fails for a result that JSON cannot express, which does not occur.
    pub fn result_line(self, result: &RunResult) -> Result<Vec<u8>, serde_json::Error> {
        #[derive(Serialize)]
        struct ResultLine<'a> {
            r#type: &'static str,
            #[serde(flatten)]
            result: &'a RunResult,
        }
        match self {
            Self::Document => jsonl::to_line(result),
            Self::Stream => jsonl::to_line(&ResultLine { r#type: "result", result }),
        }
    }
}

impl JsonSink {
    /// Returns a sink that writes here.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
    pub fn new(out: impl Write + Send + 'static, format: JsonFormat) -> io::Result<Self> {
        Ok(Self { writer: BackgroundWriter::start("json", PlainTarget(out))?, format })
    }
}

impl ReportSink for JsonSink {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        match self.format {
            JsonFormat::Document => Ok(()),
            JsonFormat::Stream => {
                self.writer.write(jsonl::to_line(event).map_err(|_| Disconnected)?)
            }
        }
    }

    fn on_parallel_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        self.on_event(event)
    }

    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        self.writer.write(self.format.result_line(result).map_err(|_| Disconnected)?)
    }

    fn finish(self: Box<Self>, timeout: Option<Duration>) -> Result<(), OutputError> {
        self.writer.finish(timeout)
    }
}

/// Writes the final answer as text, and nothing else.
///
/// Text that arrives is not written at once: until its reply is complete, it may be the answer, a remark before a
/// tool call, or a part of a discarded attempt.
pub struct TextSink {
    writer: BackgroundWriter<Vec<u8>>,
    destination: AnswerDestination,
    /// The text of the newest model call so far, where the log may have shown it.
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
            PublicEventKind::TextDelta(delta)
                if self.destination == AnswerDestination::SharedTerminal =>
            {
                self.partial_text.push_str(&delta.text);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_result(&mut self, result: &RunResult) -> Result<(), Disconnected> {
        let text = match self.destination {
            AnswerDestination::SharedTerminal if *self.partial_text == *result.output => {
                return Ok(());
            }
            AnswerDestination::SharedTerminal | AnswerDestination::Terminal => {
                sanitize::multiline(&result.output)
            }
            AnswerDestination::NonTerminal => sanitize::for_pipe(&result.output),
        };
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.writer.write(format!("{text}{end}").into_bytes())
    }

    fn finish(self: Box<Self>, timeout: Option<Duration>) -> Result<(), OutputError> {
        self.writer.finish(timeout)
    }
}
