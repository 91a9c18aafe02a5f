//! Traces and metrics of a run for OpenTelemetry: a span for the run, and below it one for each model call and each tool
//! call, and for each sub-agent below the call that dispatched it; histograms of the durations and tokens of model calls.
//!
//! Names follow the semantic conventions for generative AI (version 1.41); additional ones begin with `architect.`.
//! Off unless the environment names a collector ([`OtelSettings::from_env`]). Prompts, answers,
//! arguments and results are sent only if the environment asks for them. A slow or absent collector does not delay a run: spans are sent in batches by a thread of its own, and at
//! the end they are waited for only briefly.

mod export;
mod ids;
mod metrics;
mod settings;
mod span;
mod span_builder;

pub use export::{ExportRequest, OtelSink};
pub use ids::{TraceParent, TraceParentError};
pub use settings::{OtelSettings, OtelSettingsError, SignalSettings};
