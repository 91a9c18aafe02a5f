//! What the machine itself says to the model.

use std::sync::Arc;

use crate::machine::stop_reason::CloseReason;
use crate::model::{ConversationItem, MessageOrigin, UserMessage};

/// Asks for the rest of a reply that the output limit cut off.
pub(crate) fn continue_reply() -> ConversationItem {
    ConversationItem::user(MessageOrigin::System, "Continue from where you left off.")
}

/// Tells the model that a run that was over goes on.
pub(crate) fn continue_run() -> ConversationItem {
    ConversationItem::user(
        MessageOrigin::System,
        "[SYSTEM] The run goes on. Continue with the task.",
    )
}

/// Asks for the last word, and says why.
pub(crate) fn summarize_and_stop(reason: CloseReason) -> ConversationItem {
    let instruction = match reason {
        CloseReason::MaxSteps => {
            "The step limit is reached. Don't call any more tools. Sum up what you did, what the current state is, \
             and what remains to be done."
        }
        CloseReason::Timeout => {
            "The time limit is reached. Don't call any more tools. Sum up briefly what you did, what the current \
             state is, and what remains to be done."
        }
        CloseReason::ContextFull => {
            "The context window is full. Don't call any more tools. Sum up what you did, what the current state is, \
             and what remains to be done."
        }
        CloseReason::BudgetExceeded => {
            "The budget does not cover another step. Don't call any more tools. Sum up briefly what you did, what the current state \
             is, and what remains to be done."
        }
        CloseReason::LoopDetected => {
            "You have been repeating the same tool calls with the same results. Don't call any more tools. Sum up \
             what you did, what you tried repeatedly and why it did not work, and what remains to be done."
        }
    };
    ConversationItem::user(MessageOrigin::System, format!("[SYSTEM] {instruction}"))
}

/// Asks for a summary of the older part of the conversation; `records` is what is known of it for certain.
pub(crate) fn summarize_history(records: &str) -> String {
    let mut text = SUMMARY_INSTRUCTION.to_owned();
    if !records.is_empty() {
        text.push_str("\n\nThese records are kept beside your summary, so don't repeat them:\n\n");
        text.push_str(records.trim_end());
    }
    text
}

const SUMMARY_INSTRUCTION: &str = "\
[SYSTEM] The conversation above gets too long and will be replaced by your summary of it. Don't call tools and don't \
go on with the task. The user's own messages stay as they are. Write the summary under exactly these headings, with \
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

/// Tells the model that it has an answer already.
pub(crate) fn already_answered(turns: usize) -> String {
    // The newest turn that there is was one turn ago.
    let ago = match turns + 1 {
        1 => "1 turn ago".to_owned(),
        turns => format!("{turns} turns ago"),
    };
    format!("[The same call had the same answer {ago}; nothing has changed since.]")
}

/// Tells the model that its turns repeat.
pub(crate) fn repeated_turns(times: u32) -> ConversationItem {
    let text = format!(
        "[STEERING] You have made the same tool calls with the same results {times} times in a row. Repeating them \
         will not change the outcome. Try another approach, or finish with what you have."
    );
    ConversationItem::user(MessageOrigin::System, text)
}

/// Returns a message as the model is to read it.
pub(crate) fn user_message(message: &UserMessage) -> ConversationItem {
    let text: Arc<str> = match message.origin {
        MessageOrigin::Steering => format!("[STEERING] {}", message.text).into(),
        MessageOrigin::Task
        | MessageOrigin::FollowUp
        | MessageOrigin::System
        | MessageOrigin::Check
        | MessageOrigin::Summary => Arc::clone(&message.text),
    };
    ConversationItem::user(message.origin, text)
}

/// The answer to a call that came behind the last one that a reply may have.
pub(crate) fn too_many_calls(allowed: u32) -> String {
    format!(
        "Not run: a reply may have at most {allowed} tool calls. Make this call again in another reply."
    )
}

/// The answer to a call that the output limit cut off.
pub(crate) const TRUNCATED: &str = "Not run: the call was cut off by the output limit. Make it again with shorter arguments, \
     for example a smaller edit, or a long file in several parts.";

/// The answer to a call that was running when the run was interrupted.
pub(crate) const INTERRUPTED: &str = "Interrupted: the run was stopped while this call was under way; it may have had \
     some of its effects.";

/// The answer to a call whose turn never came.
pub(crate) const SKIPPED: &str = "Not run: the run was stopped before this call's turn came.";

/// The answer to a call that did not come back in its time.
pub(crate) const ABANDONED: &str = "No answer: the tool did not come back in its time and was left alone; it may have \
     had some of its effects.";

/// The answer to a call whose judgement did not come back in its time.
pub(crate) const NOT_AUTHORIZED: &str =
    "Not run: nobody decided in time whether this call may run.";
