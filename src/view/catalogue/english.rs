//! The English catalogue.

use super::{Message, grouped};
use crate::machine::{CloseReason, LlmFailure, NoSummary, Purpose, StopReason};
use crate::model::{FaultKind, Signal, Tokens, ToolStatus, count};
use crate::port::HookOutcome;
use crate::view::public::{Steering, SummaryBy, Unfinished};

/// Returns a sentence in English.
pub(super) fn say(message: &Message<'_>) -> String {
    match *message {
        Message::Session { id, model, agent, resumed } => {
            let session = if resumed { "Session goes on:" } else { "Session" };
            format!("{session} {id} · {model} · {agent}")
        }
        Message::Call { purpose, step, messages } => {
            let messages = count(messages, "message", "messages");
            match purpose {
                Purpose::Agent => format!("Step {step} → LLM call ({messages})"),
                Purpose::Compaction => format!("Summary → LLM call ({messages})"),
                Purpose::Closing => {
                    format!("Closing → the LLM is asked to sum up, without tools ({messages})")
                }
            }
        }
        Message::Answered { tool_calls: 0 } => "LLM answered".to_owned(),
        Message::Answered { tool_calls } => {
            format!("LLM answered with {}", count(tool_calls, "tool call", "tool calls"))
        }
        Message::CallFailed { fault, message } => {
            format!("LLM call failed: {} ({message})", fault_name(fault))
        }
        Message::CallCancelled => "LLM call cancelled".to_owned(),
        Message::Discarded => {
            "The text above does not count; its reply was not complete".to_owned()
        }
        Message::Retry { attempt, wait } => format!("Attempt {attempt} in {wait}"),
        Message::Unfinished { why } => match why {
            Unfinished::Length => "Cut off by the output limit; asking for the rest",
            Unfinished::Empty => "Empty reply; asking again",
            Unfinished::Pause => "Paused by the provider; going on",
        }
        .to_owned(),
        Message::Tool { status, error } => tool(status, error),
        Message::Lines { lines } => count(lines, "line", "lines"),
        Message::Change { old, new } => format!("{old}→{new} lines"),
        Message::Range { from, to: Some(to) } => format!("lines {from}–{to}"),
        Message::Range { from, to: None } => format!("from line {from}"),
        Message::Within { what, place } => format!("{what} in {place}"),
        Message::Files { files } => count(files, "file", "files"),
        Message::Hook { name, outcome, said } => {
            let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
            match outcome {
                HookOutcome::Passed => format!("Hook {name}: ✓{said}"),
                HookOutcome::Blocked => format!("Hook {name}: blocked{said}"),
                HookOutcome::Failed => format!("Hook {name}: ✗{said}"),
                HookOutcome::TimedOut => format!("Hook {name}: timed out{said}"),
            }
        }
        Message::Steering { kind: Steering::Steering, text } => format!("Message received: {text}"),
        Message::Steering { kind: Steering::FollowUp, text } => format!("Follow-up: {text}"),
        Message::Compacting { context } => format!("Compacting the context ({})", tokens(context)),
        Message::Compacted { context, by } => match by {
            SummaryBy::Model => format!("Compacted to {}", tokens(context)),
            SummaryBy::Program => format!("Compacted to {} without the LLM", tokens(context)),
            SummaryBy::Nobody => "Not compacted; the run ends".to_owned(),
        },
        Message::Closing { reason } => limit(reason).to_owned(),
        Message::NoSummary { cause } => {
            let why = match cause {
                NoSummary::Budget => "the budget does not cover the closing call",
                NoSummary::Context => "the closing call does not fit into the context window",
                NoSummary::Time => "there is no time left for the closing call",
            };
            format!("The run ends without a summary: {why}")
        }
        Message::OutputLowered { to } => {
            format!("The budget limits the reply to {}", tokens(to))
        }
        Message::Spent { cost } => format!("{cost} spent so far"),
        Message::Loop { times } => format!("The same tool calls {times} times in a row"),
        Message::Ended { reason, steps, llm_calls } => {
            let steps = count(steps, "step", "steps");
            let calls = count(llm_calls, "LLM call", "LLM calls");
            format!("{} ({steps}) · {calls}", ended(reason))
        }
        Message::Denied { calls: 1, tools } => format!("1 tool call was denied: {tools}"),
        Message::Denied { calls, tools } => format!("{calls} tool calls were denied: {tools}"),
        Message::Resume { command } => format!("Continue with: {command}"),
        Message::Costs { cost, used } => {
            let cost = cost.map_or("price unknown".to_owned(), |cost| cost.to_string());
            let (input, output) = (used.input_tokens.0, used.output_tokens.0);
            let cached = match used.cached_input_tokens.0 {
                0 => String::new(),
                cached => format!(" ({} cached)", grouped(cached, ",")),
            };
            let (input, output) = (grouped(input, ","), grouped(output, ","));
            format!("{cost} · {input} tokens in{cached}, {output} out")
        }
        Message::Waiting => "waiting for the LLM".to_owned(),
        Message::Running { tools } => format!("{} running", count(tools, "tool", "tools")),
    }
}

fn tokens(tokens: Tokens) -> String {
    format!("≈ {} tokens", grouped(tokens.0, ","))
}

fn tool(status: ToolStatus, error: &str) -> String {
    let what = match status {
        ToolStatus::Ok => return "OK".to_owned(),
        ToolStatus::Failed => "Failed",
        ToolStatus::TimedOut => "Timed out",
        ToolStatus::Unknown => "Unknown tool",
        ToolStatus::Malformed => "Malformed arguments",
        ToolStatus::Denied => "Denied",
        ToolStatus::Cut => "Cut off by the output limit",
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

fn limit(reason: CloseReason) -> &'static str {
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

fn ended(reason: StopReason) -> String {
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
