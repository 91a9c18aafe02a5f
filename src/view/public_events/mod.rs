//! The public events: one vocabulary for people and for programs.
//!
//! [`EventProjector`] converts [`RunEvent`](crate::port::RunEvent)s to [`PublicEvent`]s. The human log, the JSON
//! stream, the log file, reports and traces are made only from public events. Starts and ends come in pairs: each
//! `api_call_start` has its `api_call_end`, and each `tool_call_start` its `tool_call_end`, whatever happens in
//! between.

mod projector;
mod public_event;
mod serialize;
mod throttle;
mod tool_calls;

pub use projector::EventProjector;
pub(super) use projector::message_count;
pub use public_event::{
    AgentEnd, AgentStart, ApiCallEnd, ApiCallStart, CallOutcome, CompactionComplete,
    CompactionTriggered, ErrorEvent, HookComplete, IncompleteReply, LimitAction, LoopDetected,
    MessageTiming, ModelFallback, PublicEvent, PublicEventKind, RetryCause, Severity, StateChange,
    SteeringReceived, SubagentCall, SubagentDenied, SummaryAuthor, TextDelta, ToolCallEnd,
    ToolCallStart,
};
pub(in crate::view) use public_event::{decision_of, line_schema_with};
pub(super) use serialize::{TokenUsage, dollars, millis, reason, seconds};

/// The version of the public events and of the result document. It increases when the meaning of either changes.
pub const SCHEMA: u32 = 1;
