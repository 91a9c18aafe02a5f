//! Export of spans and metrics to a collector, on a separate thread.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ids::TraceParent;
use super::metrics::ModelMetrics;
use super::settings::{OtelSettings, SignalSettings};
use super::span::{OtelSpan, encode_spans};
use super::span_builder::SpanBuilder;
use crate::port::Disconnected;
use crate::types::CallId;
use crate::view::background_writer::{BackgroundWriter, OutputError, WriteQueue, WriteTarget};
use crate::view::public_events::PublicEvent;
use crate::view::result::RunResult;
use crate::view::run_info::RunInfo;
use crate::view::sink::ReportSink;

/// A request to a collector. The length of the body must be sent (`Content-Length`), since some collectors require it.
#[derive(Clone, Copy, Debug)]
pub struct ExportRequest<'a> {
    /// The URL.
    pub url: &'a str,
    /// The headers, including the content type.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
    /// The timeout of the request.
    pub timeout: Duration,
}

/// Sends a request, and waits for the answer. Fails with a message for the user if the collector cannot be reached or
/// refuses the request.
type HttpSender = Box<dyn FnMut(&ExportRequest<'_>) -> Result<(), String> + Send>;

/// Sends the spans and metrics of a run.
pub struct OtelSink {
    span_builder: SpanBuilder,
    writer: BackgroundWriter<OtelSpan>,
}

/// Sends the spans of a sub-agent's run together with those of the dispatching run.
struct SubagentSpans {
    span_builder: SpanBuilder,
    queue: Arc<WriteQueue<OtelSpan>>,
}

/// The maximum number of spans per request.
const MAX_BATCH: usize = 256;

/// The time that a span waits for others before it is sent.
const EXPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The interval at which metrics are sent during a run.
const METRICS_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout for the collector at the end of a run.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of failures in a row after which nothing more is sent.
const MAX_FAILURES: u32 = 3;

struct BatchExporter {
    sender: HttpSender,
    resource: Vec<(String, String)>,
    trace: u128,
    batch: Vec<OtelSpan>,
    metrics: ModelMetrics,
    metrics_sent_at: Instant,
    for_traces: Option<SignalExporter>,
    for_metrics: Option<SignalExporter>,
}

/// Sends the data of one signal: traces or metrics.
struct SignalExporter {
    settings: SignalSettings,
    failures: u32,
}

impl OtelSink {
    /// Returns a sink for the spans and metrics of a run.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn new(
        settings: OtelSettings,
        info: &RunInfo,
        sender: impl FnMut(&ExportRequest<'_>) -> Result<(), String> + Send + 'static,
    ) -> io::Result<Self> {
        let content = settings.captures_content.then(|| Arc::clone(&info.task));
        let spans = SpanBuilder::new(&info.session_id, info.started_at, settings.parent, content);
        let collector = BatchExporter {
            sender: Box::new(sender),
            resource: settings.resource,
            trace: spans.trace,
            batch: Vec::new(),
            metrics: ModelMetrics::new(),
            metrics_sent_at: Instant::now(),
            for_traces: settings.traces.map(SignalExporter::new),
            for_metrics: settings.metrics.map(SignalExporter::new),
        };
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

    fn subagent_sink(&self, call: &CallId) -> Option<Box<dyn ReportSink>> {
        let span_builder = self.span_builder.below_call(call)?;
        Some(Box::new(SubagentSpans { span_builder, queue: self.writer.queue() }))
    }

    /// Waits a short time, and never fails: a run does not depend on its collector.
    fn finish(self: Box<Self>, timeout: Option<Duration>) -> Result<(), OutputError> {
        let timeout = timeout.map_or(SHUTDOWN_TIMEOUT, |most| most.min(SHUTDOWN_TIMEOUT));
        if let Err(lost) = self.writer.finish(Some(timeout)) {
            log::warn!("the traces are incomplete: {lost}");
        }
        Ok(())
    }
}

impl ReportSink for SubagentSpans {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        if let Some(span) = self.span_builder.on_event(event) {
            let _ = self.queue.write(span);
        }
        Ok(())
    }
}

impl Drop for SubagentSpans {
    /// Ends the open spans of a run that broke off.
    fn drop(&mut self) {
        for span in self.span_builder.close_all() {
            let _ = self.queue.write(span);
        }
    }
}

impl BatchExporter {
    fn send_spans(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let Some(exporter) = self.for_traces.as_mut().filter(|_| !batch.is_empty()) else { return };
        let body = encode_spans(self.trace, &self.resource, &batch);
        exporter.send(&mut self.sender, &body, "spans");
    }

    fn send_metrics(&mut self) {
        self.metrics_sent_at = Instant::now();
        let Some(exporter) = &mut self.for_metrics else { return };
        if let Some(body) = self.metrics.encode(&self.resource) {
            exporter.send(&mut self.sender, &body, "metrics");
        }
    }
}

impl SignalExporter {
    fn new(mut settings: SignalSettings) -> Self {
        settings.headers.insert(0, ("content-type".to_owned(), "application/json".to_owned()));
        Self { settings, failures: 0 }
    }

    fn send(&mut self, sender: &mut HttpSender, body: &[u8], what: &str) {
        if self.failures >= MAX_FAILURES {
            return;
        }
        let SignalSettings { url, headers, timeout } = &self.settings;
        match sender(&ExportRequest { url, headers, body, timeout: *timeout }) {
            Ok(()) => self.failures = 0,
            Err(reason) => {
                self.failures += 1;
                log::warn!("could not send {what}: {reason}");
            }
        }
    }
}

impl WriteTarget<OtelSpan> for BatchExporter {
    fn write_item(&mut self, span: OtelSpan) -> io::Result<()> {
        self.metrics.record(&span);
        self.batch.push(span);
        if self.batch.len() >= MAX_BATCH {
            self.send_spans();
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
        self.send_spans();
        if self.metrics_sent_at.elapsed() >= METRICS_INTERVAL {
            self.send_metrics();
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.send_spans();
        self.send_metrics();
        Ok(())
    }
}
