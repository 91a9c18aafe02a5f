//! Exports spans to a collector, on a thread of its own.

use std::io;
use std::time::Duration;

use super::ids::TraceParent;
use super::settings::OtelSettings;
use super::span::{OtelSpan, encode_body};
use super::span_builder::SpanBuilder;
use crate::port::Disconnected;
use crate::view::background_writer::{BackgroundWriter, OutputError, WriteTarget};
use crate::view::public::PublicEvent;
use crate::view::result::RunResult;
use crate::view::run_info::RunInfo;
use crate::view::sink::ReportSink;

/// A request to a collector. Its body has a known length, which must be sent (`Content-Length`): some collectors
/// accept nothing else.
#[derive(Clone, Copy, Debug)]
pub struct ExportRequest<'a> {
    /// The URL.
    pub url: &'a str,
    /// The headers, including the content type.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
    /// How long it may take.
    pub timeout: Duration,
}

/// Sends a request and waits for the answer. Fails with a message for the user if the collector cannot be reached or
/// refuses.
type HttpSender = Box<dyn FnMut(&ExportRequest<'_>) -> Result<(), String> + Send>;

/// Sends the spans of a run.
pub struct OtelSink {
    span_builder: SpanBuilder,
    writer: BackgroundWriter<OtelSpan>,
}

/// The maximum number of spans per request.
const MAX_BATCH: usize = 256;

/// How long a span waits for others before it is sent.
const EXPORT_INTERVAL: Duration = Duration::from_secs(5);

/// How long the end of a run waits for the collector.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Failures in a row after which nothing more is sent.
const MAX_FAILURES: u32 = 3;

struct BatchExporter {
    sender: HttpSender,
    settings: OtelSettings,
    trace: u128,
    batch: Vec<OtelSpan>,
    failures: u32,
}

impl OtelSink {
    /// Returns a sink for the spans of a run.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
    pub fn new(
        mut settings: OtelSettings,
        info: &RunInfo,
        sender: impl FnMut(&ExportRequest<'_>) -> Result<(), String> + Send + 'static,
    ) -> io::Result<Self> {
        let spans = SpanBuilder::new(&info.session_id, info.started_at, settings.parent);
        settings.headers.insert(0, ("content-type".to_owned(), "application/json".to_owned()));
        let (sender, trace) = (Box::new(sender), spans.trace);
        let collector = BatchExporter { sender, settings, trace, batch: Vec::new(), failures: 0 };
        Ok(Self { span_builder: spans, writer: BackgroundWriter::start("traces", collector)? })
    }

    /// Returns the `TRACEPARENT` for the commands of the run.
    pub fn trace_parent(&self) -> TraceParent {
        self.span_builder.trace_parent()
    }
}

impl ReportSink for OtelSink {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        if let Some(span) = self.span_builder.on_event(event) {
            let _ = self.writer.write(span);
        }
        Ok(())
    }

    fn on_result(&mut self, _: &RunResult) -> Result<(), Disconnected> {
        for span in self.span_builder.close_all() {
            let _ = self.writer.write(span);
        }
        Ok(())
    }

    /// Waits briefly, and never fails: a run does not depend on its collector.
    fn finish(self: Box<Self>, timeout: Option<Duration>) -> Result<(), OutputError> {
        let timeout = timeout.map_or(SHUTDOWN_TIMEOUT, |most| most.min(SHUTDOWN_TIMEOUT));
        if let Err(lost) = self.writer.finish(Some(timeout)) {
            log::warn!("the traces are incomplete: {lost}");
        }
        Ok(())
    }
}

impl BatchExporter {
    fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() || self.failures >= MAX_FAILURES {
            return;
        }
        let OtelSettings { url, headers, timeout, resource, .. } = &self.settings;
        let body = encode_body(self.trace, resource, &batch);
        match (self.sender)(&ExportRequest { url, headers, body: &body, timeout: *timeout }) {
            Ok(()) => self.failures = 0,
            Err(reason) => {
                self.failures += 1;
                log::warn!("could not send {} spans: {reason}", batch.len());
            }
        }
    }
}

impl WriteTarget<OtelSpan> for BatchExporter {
    fn write_item(&mut self, span: OtelSpan) -> io::Result<()> {
        self.batch.push(span);
        if self.batch.len() >= MAX_BATCH {
            self.send();
        }
        Ok(())
    }

    /// Spans are sent in batches, not on a flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn tick_interval(&self) -> Option<Duration> {
        (!self.batch.is_empty()).then_some(EXPORT_INTERVAL)
    }

    fn on_tick(&mut self) -> io::Result<()> {
        self.send();
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.send();
        Ok(())
    }
}
