//! Spans leave for their collector, on a thread of their own.

use std::io;
use std::time::Duration;

use super::fold::Spans;
use super::ids::{TraceId, TraceParent};
use super::otlp;
use super::settings::Settings;
use super::span::Span;
use crate::port::Gone;
use crate::view::about::About;
use crate::view::output::Output;
use crate::view::public::PublicEvent;
use crate::view::result::RunResult;
use crate::view::writer::{Lost, Patience, Sink, Writer};

/// A request to a collector. Its body has a known length, which has to be said (`Content-Length`): some collectors
/// take nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// The address.
    pub url: &'a str,
    /// The headers, the content's type among them.
    pub headers: &'a [(String, String)],
    /// The content.
    pub body: &'a [u8],
    /// How long it may take.
    pub timeout: Duration,
}

/// Sends a request.
pub trait Post: Send {
    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    ///
    /// Fails with what to tell people, when the collector cannot be reached or refuses.
    fn post(&mut self, export: &Export<'_>) -> Result<(), String>;
}

impl<F: FnMut(&Export<'_>) -> Result<(), String> + Send> Post for F {
    fn post(&mut self, export: &Export<'_>) -> Result<(), String> {
        self(export)
    }
}

/// Sends the traces of a run.
pub struct Telemetry {
    spans: Spans,
    writer: Writer<Span>,
}

/// What is sent at once.
const BATCH: usize = 256;

/// How long a span waits for others.
const PULSE: Duration = Duration::from_secs(5);

/// How long the end of a run waits for the collector at the most.
const PATIENCE: Duration = Duration::from_secs(2);

/// Failures in a row after which nothing more is tried.
const FAILURES: u32 = 3;

struct Collector<P> {
    post: P,
    settings: Settings,
    trace: TraceId,
    batch: Vec<Span>,
    failures: u32,
}

impl Telemetry {
    /// Returns the traces of a run.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub fn new(settings: Settings, about: &About, post: impl Post + 'static) -> io::Result<Self> {
        let spans = Spans::new(&about.session_id, about.began, settings.parent);
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let settings = Settings { headers: [&headers[..], &settings.headers].concat(), ..settings };
        let collector =
            Collector { post, settings, trace: spans.trace, batch: Vec::new(), failures: 0 };
        Ok(Self { spans, writer: Writer::start("traces", collector)? })
    }

    /// Returns what the commands of the run are to be told (`TRACEPARENT`).
    pub fn parent(&self) -> TraceParent {
        self.spans.within()
    }
}

impl Output for Telemetry {
    fn event(&mut self, event: &PublicEvent) -> Result<(), Gone> {
        for span in self.spans.see(event) {
            let _ = self.writer.put(span);
        }
        Ok(())
    }

    fn result(&mut self, _: &RunResult) -> Result<(), Gone> {
        for span in self.spans.break_off() {
            let _ = self.writer.put(span);
        }
        Ok(())
    }

    /// Waits briefly, and never fails: a run does not depend on who watches it.
    fn finish(self: Box<Self>, patience: Patience) -> Result<(), Lost> {
        let patience = match patience {
            Patience::UntilRead => PATIENCE,
            Patience::AtMost(most) => most.min(PATIENCE),
        };
        if let Err(lost) = self.writer.finish(Patience::AtMost(patience)) {
            log::warn!("the traces are not complete: {lost}");
        }
        Ok(())
    }
}

impl<P: Post> Collector<P> {
    fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() || self.failures >= FAILURES {
            return;
        }
        let Settings { url, headers, timeout, resource, .. } = &self.settings;
        let sent =
            otlp::body(self.trace, resource, &batch).map_err(|error| error.to_string()).and_then(
                |body| self.post.post(&Export { url, headers, body: &body, timeout: *timeout }),
            );
        match sent {
            Ok(()) => self.failures = 0,
            Err(why) => {
                self.failures += 1;
                log::warn!("could not send {} spans: {why}", batch.len());
            }
        }
    }
}

impl<P: Post> Sink<Span> for Collector<P> {
    fn put(&mut self, span: Span) -> io::Result<()> {
        self.batch.push(span);
        if self.batch.len() >= BATCH {
            self.send();
        }
        Ok(())
    }

    /// Nothing is buffered that somebody waits for; spans wait for each other.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn pulse(&self) -> Option<Duration> {
        (!self.batch.is_empty()).then_some(PULSE)
    }

    fn beat(&mut self) -> io::Result<()> {
        self.send();
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.send();
        Ok(())
    }
}
