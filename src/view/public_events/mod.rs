//! The public events: the one vocabulary for people and programs.
//!
//! [`EventProjector`] turns [`RunEvent`](crate::port::RunEvent)s into [`PublicEvent`]s; the human log, the JSON
//! stream, the log file, reports and traces are made of them alone. Starts and ends come in pairs: each
//! `api_call_start` has its `api_call_end`, each `tool_call_start` its `tool_call_end`, whatever comes in between.

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
    SteeringReceived, SubagentCall, SummaryAuthor, TextDelta, ToolCallEnd, ToolCallStart,
};
pub(in crate::view) use public_event::{decision_of, line_schema_with};
pub(super) use serialize::{TokenUsage, dollars, millis, reason, seconds};

/// The version of the public events and of the result document; increased when the meaning of either changes.
pub const SCHEMA: u32 = 1;
