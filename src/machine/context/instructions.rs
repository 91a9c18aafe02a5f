//! The messages of the machine to the model.

use std::sync::Arc;

use crate::machine::stop_reason::CloseReason;
use crate::types::{ConversationItem, MessageOrigin, UserMessage};

/// Asks for the rest of a reply that the output limit cut off.
pub(crate) fn continue_reply() -> ConversationItem {
    ConversationItem::user(MessageOrigin::System, "Continue from where you left off.")
}

/// Asks the model to continue a run that had ended.
pub(crate) fn continue_run() -> ConversationItem {
    ConversationItem::user(
        MessageOrigin::System,
        "[SYSTEM] The run continues. Continue with the task.",
    )
}

/// Lists the commands that an answer has to wait for.
pub(crate) fn needed_commands_run(commands: &[String]) -> String {
    format!(
        "What was started as needed still runs: {}. Wait for its end with command_output, or stop it with stop_command.",
        commands.join(", ")
    )
}

/// Asks for a final summary, with the reason.
pub(crate) fn summarize_and_stop(reason: CloseReason) -> ConversationItem {
    let (whole, brief) = (
        "Summarize what you did, what the current state is, and what remains to be done.",
        "Summarize briefly what you did, what the current state is, and what remains to be done.",
    );
    let (why, request) = match reason {
        CloseReason::MaxSteps => ("The step limit is reached.", whole),
        CloseReason::Timeout => ("The time limit is reached.", brief),
        CloseReason::ContextFull => ("The context window is full.", whole),
        CloseReason::BudgetExceeded => ("The budget does not cover another step.", brief),
        CloseReason::LoopDetected => (
            "You have been repeating the same tool calls with the same results.",
            "Summarize what you did, what you tried repeatedly and why it did not work, and what remains to be done.",
        ),
    };
    let text = format!("[SYSTEM] {why} Don't call any more tools. {request}");
    ConversationItem::user(MessageOrigin::System, text)
}

/// Asks for a summary of the older part of the conversation. `records` are the recorded facts about it.
pub(crate) fn summarize_history(records: &str) -> String {
    let mut text = SUMMARY_INSTRUCTION.to_owned();
    if !records.is_empty() {
        text.push_str("\n\nThese records are kept beside your summary, so don't repeat them:\n\n");
        text.push_str(records.trim_end());
    }
    text
}

const SUMMARY_INSTRUCTION: &str = "\
[SYSTEM] The conversation above is too long and will be replaced by your summary of it. Don't call tools and don't \
continue the task. The user's own messages stay as they are. Write the summary under exactly these headings, with \
\"none\" where there is nothing to say:

## Goal
## Done
## In progress
## Decisions
## Constraints
## Errors
## Next

Under Decisions say why; under Errors say what failed and what was tried against it; under Next say what to do first. \
Be exact about names, paths, commands and numbers; leave out what no later step needs.";

/// Notes that an earlier result was the same.
pub(crate) fn already_answered(turns: usize) -> String {
    // The newest turn was one turn ago.
    let ago = match turns + 1 {
        1 => "1 turn ago".to_owned(),
        turns => format!("{turns} turns ago"),
    };
    format!("[The same call had the same answer {ago}; nothing has changed since.]")
}

/// Warns that turns repeat.
pub(crate) fn repeated_turns(times: u32) -> ConversationItem {
    let text = format!(
        "[STEERING] You have made the same tool calls with the same results {times} times in a row. Repeating them \
         will not change the outcome. Try another approach, or finish with what you have."
    );
    ConversationItem::user(MessageOrigin::System, text)
}

/// Returns a message as the model reads it.
pub(crate) fn user_message(message: &UserMessage) -> ConversationItem {
    let text: Arc<str> = match message.origin {
        MessageOrigin::Steering => format!("[STEERING] {}", message.text).into(),
        MessageOrigin::Task
        | MessageOrigin::FollowUp
        | MessageOrigin::System
        | MessageOrigin::Check
        | MessageOrigin::Summary => Arc::clone(&message.text),
    };
    ConversationItem::User(UserMessage { text, ..message.clone() })
}

/// The result of a call beyond the limit of calls in a reply.
pub(crate) fn too_many_calls(allowed: u32) -> String {
    format!(
        "Not run: a reply may have at most {allowed} tool calls. Make this call again in another reply."
    )
}

/// The result of a call that the output limit cut off.
pub(crate) const TRUNCATED: &str = "Not run: the call was cut off by the output limit. Make it again with shorter arguments, \
     for example a smaller edit, or a long file in several parts.";

/// The result of a call that was running when the run was interrupted.
pub(crate) const INTERRUPTED: &str = "Interrupted: the run was stopped while this call was under way; it may have had \
     some of its effects.";

/// The result of a call that had not started when the run stopped.
pub(crate) const SKIPPED: &str = "Not run: the run was stopped before this call's turn came.";

/// The result of a call that timed out.
pub(crate) const ABANDONED: &str = "No answer: the tool did not complete in time, and the run continued without it; it may have \
     had some of its effects.";

/// The result of a call whose authorization timed out.
pub(crate) const NOT_AUTHORIZED: &str = "Not run: the call was not authorized in time.";
