//! Traces of a run for OpenTelemetry: a span for the run, and below it one for each model call and each tool call.
//!
//! Names follow the semantic conventions for generative AI (version 1.41); what they have no name for begins with
//! `architect.`. Off unless the environment names a collector ([`Settings::from_env`]). No prompt, answer, argument or
//! result is sent. A collector that is slow or gone costs a run nothing: spans leave on a thread of their own, in
//! batches, and at the end they are waited for only briefly.

mod export;
mod ids;
mod otlp;
mod settings;
mod span;
mod span_builder;

pub use export::{ExportRequest, HttpPost, OtelSink};
pub use ids::{TraceParent, TraceParentError};
pub use settings::{OtelSettings, OtelSettingsError};
