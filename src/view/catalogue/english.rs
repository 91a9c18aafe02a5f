//! The English catalogue.

use super::{LogMessage, group_thousands};
use crate::machine::{CallPurpose, CloseReason, LlmFailure, NoFinalSummary, StopReason};
use crate::model::{FaultKind, Signal, Tokens, ToolStatus, pluralize};
use crate::port::HookOutcome;
use crate::view::public::{IncompleteReply, MessageTiming, SummaryAuthor};

/// Returns a sentence in English.
pub(super) fn render(message: &LogMessage<'_>) -> String {
    match *message {
        LogMessage::Session { id, model, agent, resumed } => {
            let session = if resumed { "Session goes on:" } else { "Session" };
            format!("{session} {id} · {model} · {agent}")
        }
        LogMessage::ModelCall { purpose, step, messages } => {
            let messages = pluralize(messages, "message", "messages");
            match purpose {
                CallPurpose::Agent => format!("Step {step} → LLM call ({messages})"),
                CallPurpose::Compaction => format!("Summary → LLM call ({messages})"),
                CallPurpose::Closing => {
                    format!("Closing → the LLM is asked to sum up, without tools ({messages})")
                }
            }
        }
        LogMessage::Replied { tool_calls: 0 } => "LLM answered".to_owned(),
        LogMessage::Replied { tool_calls } => {
            format!("LLM answered with {}", pluralize(tool_calls, "tool call", "tool calls"))
        }
        LogMessage::CallFailed { fault, message } => {
            format!("LLM call failed: {} ({message})", fault_name(fault))
        }
        LogMessage::CallCancelled => "LLM call cancelled".to_owned(),
        LogMessage::Discarded => {
            "The text above does not count; its reply was not complete".to_owned()
        }
        LogMessage::Retry { attempt, wait } => format!("Attempt {attempt} in {wait}"),
        LogMessage::IncompleteReply { reason: why } => match why {
            IncompleteReply::Length => "Cut off by the output limit; asking for the rest",
            IncompleteReply::Empty => "Empty reply; asking again",
            IncompleteReply::Pause => "Paused by the provider; going on",
        }
        .to_owned(),
        LogMessage::Tool { status, error } => tool_outcome(status, error),
        LogMessage::Lines { lines } => pluralize(lines, "line", "lines"),
        LogMessage::Change { old, new } => format!("{old}→{new} lines"),
        LogMessage::Range { from, to: Some(to) } => format!("lines {from}–{to}"),
        LogMessage::Range { from, to: None } => format!("from line {from}"),
        LogMessage::Search { pattern: what, path: place } => format!("{what} in {place}"),
        LogMessage::Files { files } => pluralize(files, "file", "files"),
        LogMessage::Hook { name, outcome, output: said } => {
            let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
            match outcome {
                HookOutcome::Passed => format!("Hook {name}: ✓{said}"),
                HookOutcome::Blocked => format!("Hook {name}: blocked{said}"),
                HookOutcome::Failed => format!("Hook {name}: ✗{said}"),
                HookOutcome::TimedOut => format!("Hook {name}: timed out{said}"),
            }
        }
        LogMessage::Steering { kind: MessageTiming::Steering, text } => {
            format!("Message received: {text}")
        }
        LogMessage::Steering { kind: MessageTiming::FollowUp, text } => {
            format!("Follow-up: {text}")
        }
        LogMessage::Compacting { context } => {
            format!("Compacting the context ({})", tokens(context))
        }
        LogMessage::Compacted { context, by } => match by {
            SummaryAuthor::Model => format!("Compacted to {}", tokens(context)),
            SummaryAuthor::Program => format!("Compacted to {} without the LLM", tokens(context)),
            SummaryAuthor::None => "Not compacted; the run ends".to_owned(),
        },
        LogMessage::Closing { reason } => limit_name(reason).to_owned(),
        LogMessage::NoSummary { cause } => {
            let why = match cause {
                NoFinalSummary::Budget => "the budget does not cover the closing call",
                NoFinalSummary::Context => "the closing call does not fit into the context window",
                NoFinalSummary::Time => "there is no time left for the closing call",
            };
            format!("The run ends without a summary: {why}")
        }
        LogMessage::OutputLowered { to } => {
            format!("The budget limits the reply to {}", tokens(to))
        }
        LogMessage::CostWarning { cost } => format!("{cost} spent so far"),
        LogMessage::Loop { times } => format!("The same tool calls {times} times in a row"),
        LogMessage::Ended { reason, steps, llm_calls } => {
            let steps = pluralize(steps, "step", "steps");
            let calls = pluralize(llm_calls, "LLM call", "LLM calls");
            format!("{} ({steps}) · {calls}", run_ended(reason))
        }
        LogMessage::Denied { calls: 1, tools } => format!("1 tool call was denied: {tools}"),
        LogMessage::Denied { calls, tools } => format!("{calls} tool calls were denied: {tools}"),
        LogMessage::Resume { command } => format!("Continue with: {command}"),
        LogMessage::Costs { cost, usage: used } => {
            let cost = cost.map_or("price unknown".to_owned(), |cost| cost.to_string());
            let (input, output) = (used.input_tokens.0, used.output_tokens.0);
            let cached = match used.cached_input_tokens.0 {
                0 => String::new(),
                cached => format!(" ({} cached)", group_thousands(cached, ",")),
            };
            let (input, output) = (group_thousands(input, ","), group_thousands(output, ","));
            format!("{cost} · {input} tokens in{cached}, {output} out")
        }
        LogMessage::Waiting => "waiting for the LLM".to_owned(),
        LogMessage::Running { tools } => format!("{} running", pluralize(tools, "tool", "tools")),
    }
}

fn tokens(tokens: Tokens) -> String {
    format!("≈ {} tokens", group_thousands(tokens.0, ","))
}

fn tool_outcome(status: ToolStatus, error: &str) -> String {
    let what = match status {
        ToolStatus::Ok => return "OK".to_owned(),
        ToolStatus::Failed => "Failed",
        ToolStatus::TimedOut => "Timed out",
        ToolStatus::Unknown => "Unknown tool",
        ToolStatus::Malformed => "Malformed arguments",
        ToolStatus::Denied => "Denied",
        ToolStatus::Truncated => "Cut off by the output limit",
        ToolStatus::Skipped => "Skipped",
        ToolStatus::Interrupted => "Interrupted",
        ToolStatus::Abandoned => "Abandoned",
        ToolStatus::InDoubt => "Outcome unknown",
    };
    match error {
        "" => what.to_owned(),
        // The mark before it says that it failed.
        error if status == ToolStatus::Failed => error.to_owned(),
        error if error.to_lowercase().starts_with(&what.to_lowercase()) => error.to_owned(),
        error => format!("{what}: {error}"),
    }
}

fn fault_name(fault: FaultKind) -> &'static str {
    match fault {
        FaultKind::Connect => "no connection",
        FaultKind::Timeout => "timed out",
        FaultKind::RateLimited => "rate limited",
        FaultKind::Server => "the provider failed",
        FaultKind::Truncated => "the reply was cut off",
        FaultKind::Protocol => "the reply is not understood",
        FaultKind::Overflow => "the context does not fit",
        FaultKind::Auth => "not authorised",
        FaultKind::Quota => "no quota left",
        FaultKind::Refused => "refused by the provider",
        FaultKind::Request => "the request is wrong",
        FaultKind::NotAnApi => "this is no model API",
        FaultKind::Tls => "the connection is not trusted",
        FaultKind::Blocked => "blocked by a hook",
    }
}

fn limit_name(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::MaxSteps => "Step limit reached (max_steps)",
        CloseReason::Timeout => "Time is up (timeout)",
        CloseReason::ContextFull => "The context window is full (context_full)",
        CloseReason::BudgetExceeded => {
            "The budget does not cover another LLM call (budget_exceeded)"
        }
        CloseReason::LoopDetected => "The run repeats itself (loop_detected)",
    }
}

fn run_ended(reason: StopReason) -> String {
    match reason {
        StopReason::LlmDone => "Agent completed".to_owned(),
        StopReason::Closed(_)
        | StopReason::Truncated
        | StopReason::EmptyResponse
        | StopReason::Refused
        | StopReason::InvalidToolCalls
        | StopReason::SchemaNotMet
        | StopReason::ChecksFailed
        | StopReason::EvaluationFailed => format!("Agent stopped: {reason}"),
        StopReason::UserInterrupt(Signal::Interrupt) => "Interrupted by the user".to_owned(),
        StopReason::UserInterrupt(Signal::Terminate) => "Terminated".to_owned(),
        StopReason::UserInterrupt(Signal::Hangup) => "The terminal went away".to_owned(),
        StopReason::UserInterrupt(Signal::Pipe) => "Nobody reads the output any more".to_owned(),
        StopReason::LlmError(LlmFailure::Auth) => "Agent failed: not authorised".to_owned(),
        StopReason::LlmError(LlmFailure::Timeout) => "Agent failed: the LLM timed out".to_owned(),
        StopReason::LlmError(LlmFailure::Other)
        | StopReason::StoreError
        | StopReason::InternalError => format!("Agent failed: {reason}"),
    }
}
