//! The outputs of a run. For programs: one document at the end, or one event per line. For people: the answer as text.

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

/// An activity of a run that is shown, but neither a public event nor stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveEvent<'a> {
    /// A tool call runs: its authorization is complete.
    CallRuns {
        /// The effect that runs the call.
        effect: EffectId,
        /// The call.
        call: &'a CallId,
    },
    /// The progress of a long operation. It replaces earlier progress.
    Progress {
        /// The effect of the operation.
        effect: EffectId,
        /// The current operation.
        text: &'a str,
    },
    /// The end of the output of a running command.
    Output {
        /// The call that runs the command.
        call: &'a CallId,
        /// The last lines.
        text: &'a str,
    },
    /// The change of files by a call; in a dry run, the change that it would have made.
    Diff {
        /// The call.
        call: &'a CallId,
        /// The change as a unified diff.
        diff: &'a str,
    },
    /// A part of the model's reasoning.
    Reasoning(&'a str),
    /// The usage of the session after an event.
    Used {
        /// The cost, if the model has a price.
        cost: Option<MicroUsd>,
        /// The context window of the model.
        window: Tokens,
    },
    /// The start of an MCP server.
    Server {
        /// The name of the server.
        name: &'a str,
        /// The state of the start.
        state: ServerState,
    },
}

/// The state of a server's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// The server is starting.
    Starting,
    /// The tools of the server are known.
    Ready,
    /// The server is not available.
    Failed,
}

/// An output of a run: a log, a stream, a document.
pub trait ReportSink: Send {
    /// Returns a sink for the run of a sub-agent dispatched by a call; `None` if this output needs none.
    fn subagent_sink(&self, _call: &CallId) -> Option<Box<dyn ReportSink>> {
        None
    }

    /// Adds an event.
    ///
    /// # Errors
    ///
    /// Fails if the reader is gone. The run then ends.
    fn on_event(&mut self, _event: &PublicEvent) -> Result<(), Disconnected> {
        Ok(())
    }

    /// Adds an event of a run that takes place in parallel with others.
    ///
    /// # Errors
    ///
    /// Fails if the reader is gone. That run then ends.
    fn on_parallel_event(&mut self, _event: &PublicEvent) -> Result<(), Disconnected> {
        Ok(())
    }

    /// Receives an event of the driver before the public events that are made from it, for information that those lack:
    /// the model's reasoning, and the start of approved calls.
    fn on_run_event(&mut self, _event: &RunEvent<'_>) {}

    /// Shows a present activity. Lost live events are harmless.
    fn on_live(&mut self, _live: &LiveEvent<'_>) {}

    /// Returns the changes of files that this output shows as diffs.
    fn shown_diffs(&self) -> ShownDiffs {
        ShownDiffs::DryRun
    }

    /// Writes the result, which is the last item.
    ///
    /// # Errors
    ///
    /// Fails if the reader is gone.
    fn on_result(&mut self, _result: &RunResult) -> Result<(), Disconnected> {
        Ok(())
    }

    /// Waits until everything is written, up to `_timeout` if there is one.
    ///
    /// # Errors
    ///
    /// Fails if the output cannot be written, or not in time.
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
    /// Makes an output optional. `what` is its name in the warning about a failure.
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

/// The content of the JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFormat {
    /// Only the result document.
    Document,
    /// One line for each event, and a last line for the result.
    Stream,
}

impl JsonFormat {
    /// Returns the line of the result. It is the only line of a run that did not start.
    ///
    /// # Errors
    ///
    /// Fails if JSON cannot express the result, which does not occur.
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
    /// Returns a sink that writes to `out`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
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
/// Text is not written as it arrives: until the reply is complete, it may be the answer, a remark before a tool call,
/// or part of a discarded attempt.
pub struct TextSink {
    writer: BackgroundWriter<Vec<u8>>,
    destination: AnswerDestination,
    /// The text of the newest model call so far, for a log that shows text as it arrives.
    partial_text: String,
}

/// The destination of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerDestination {
    /// A pipe or a file. Control characters are escaped, since the text may end on a terminal.
    NonTerminal,
    /// A terminal. Control characters are escaped.
    Terminal,
    /// A terminal on which the log shows text as it arrives. Shown text is not repeated.
    SharedTerminal,
}

impl TextSink {
    /// Returns a sink that writes to `out`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
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
