//! Traces and metrics of a run for OpenTelemetry. Below the span of a run there is one for each model call, each tool
//! call, and each sub-agent, the latter below the call that dispatched it. Metrics are histograms of the durations and
//! tokens of model calls.
//!
//! Names follow the semantic conventions for generative AI (version 1.41); additional ones begin with `architect.`.
//! Telemetry is off unless the environment names a collector ([`OtelSettings::from_env`]). Prompts, answers, arguments
//! and results are sent only if the environment asks for them. A slow or absent collector does not delay a run: a
//! separate thread sends spans in batches, and the end of the run waits for it only briefly.

mod export;
mod ids;
mod metrics;
mod settings;
mod span;
mod span_builder;

pub use export::{ExportRequest, OtelSink};
pub use ids::{TraceParent, TraceParentError};
pub use settings::{OtelSettings, OtelSettingsError, SignalSettings};
