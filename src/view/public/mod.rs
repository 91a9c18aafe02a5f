//! The public events: the one vocabulary in which a run is told to people and programs.
//!
//! [`Projector`] folds what the driver shows ([`Seen`](crate::port::Seen)) into [`PublicEvent`]s; the human log, the
//! JSON stream, the log file, reports and traces are made of them alone. Starts and ends come in pairs: each
//! `api_call_start` has its `api_call_end`, each `tool_call_start` its `tool_call_end`, whatever comes in between.

mod calls;
mod event;
mod numbers;
mod projector;
mod throttle;
mod tools;
mod used;

pub use event::{
    AgentEnd, AgentStart, ApiCallEnd, ApiCallStart, CallOutcome, CompactionComplete,
    CompactionTriggered, Decision, Error, GivenLimits, HookComplete, Kind, LoopDetected, Measure,
    PublicEvent, Retry, RetryCause, SafetyNet, Severity, StateChange, Steering, SteeringReceived,
    SubagentCall, SummaryBy, TextDelta, ToolCallEnd, ToolCallStart, Unfinished,
};
pub(super) use numbers::{maybe_dollars, maybe_millis, millis, seconds};
pub use projector::Projector;
pub(super) use projector::messages;
pub use used::Used;

/// The version of the public events and of the result document; it grows when either changes its meaning.
pub const SCHEMA: u32 = 1;
