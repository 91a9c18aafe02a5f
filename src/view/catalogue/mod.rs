//! Everything that the log says to people, in each language.
//!
//! A sentence is a [`Message`] with typed parameters, and each language is one `match` over all of them: a translation
//! that is missing does not compile. Texts that come from outside (errors, names, paths) have to be clean already.

mod english;
mod spanish;

use super::public::{IncompleteReply, MessageTiming, SummaryAuthor, TokenUsage};
use crate::machine::{CallPurpose, CloseReason, NoFinalSummary, StopReason};
use crate::model::{FaultKind, Language, MicroUsd, TimeSpan, Tokens, ToolStatus};
use crate::port::HookOutcome;

/// Something that the log says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LogMessage<'a> {
    /// A run begins.
    Session {
        /// The session.
        id: &'a str,
        /// The model.
        model: &'a str,
        /// The agent.
        agent: &'a str,
        /// Whether the session has run before.
        resumed: bool,
    },
    /// A request goes to the model.
    ModelCall {
        /// What it is for.
        purpose: CallPurpose,
        /// The step that its tool calls would be.
        step: u32,
        /// Messages in it.
        messages: u32,
    },
    /// A complete reply came.
    Replied {
        /// How many tools it calls.
        tool_calls: u32,
    },
    /// A request failed.
    CallFailed {
        /// What happened.
        fault: FaultKind,
        /// What the provider or the network says.
        message: &'a str,
    },
    /// Nobody waits for a request any more.
    CallCancelled,
    /// The text that was shown so far belongs to an attempt that does not count.
    Discarded,
    /// A request will be sent again.
    Retry {
        /// The attempt, counted from one.
        attempt: u32,
        /// How long it waits.
        wait: TimeSpan,
    },
    /// The model is asked to go on.
    IncompleteReply {
        /// What about its reply is not whole.
        reason: IncompleteReply,
    },
    /// How a tool call ended.
    Tool {
        /// How.
        status: ToolStatus,
        /// What is said about it; empty when the tool did what it was asked for.
        error: &'a str,
    },
    /// So many lines were written.
    Lines {
        /// How many.
        lines: usize,
    },
    /// So many lines take the place of so many.
    Change {
        /// Lines before.
        old: usize,
        /// Lines after.
        new: usize,
    },
    /// Lines of a file.
    Range {
        /// The first one, counted from one.
        from: u64,
        /// The last one; none for the end of the file.
        to: Option<u64>,
    },
    /// Something is looked for somewhere.
    Search {
        /// What.
        pattern: &'a str,
        /// Where.
        path: &'a str,
    },
    /// So many files.
    Files {
        /// How many.
        files: usize,
    },
    /// A hook came back.
    Hook {
        /// Its name.
        name: &'a str,
        /// How it ended.
        outcome: HookOutcome,
        /// What it said; may be empty.
        output: &'a str,
    },
    /// A message of the user reached the run.
    Steering {
        /// When the model reads it.
        kind: MessageTiming,
        /// The message.
        text: &'a str,
    },
    /// The context is being compacted.
    Compacting {
        /// How large it is.
        context: Tokens,
    },
    /// The context was compacted.
    Compacted {
        /// How large it is now.
        context: Tokens,
        /// Who wrote the summary.
        by: SummaryAuthor,
    },
    /// A watchdog closes the run.
    Closing {
        /// Which one.
        reason: CloseReason,
    },
    /// The run ends without a closing call.
    NoSummary {
        /// What leaves no room for it.
        cause: NoFinalSummary,
    },
    /// A call may write less than usual, since the budget has no room for more.
    OutputLowered {
        /// To what.
        to: Tokens,
    },
    /// More money was used than the user wants to hear of.
    CostWarning {
        /// How much.
        cost: MicroUsd,
    },
    /// The same turns were made again and again.
    Loop {
        /// How often in a row.
        times: u32,
    },
    /// The run is over.
    Ended {
        /// Why.
        reason: StopReason,
        /// Replies whose tool calls ran.
        steps: u32,
        /// Model calls; the last one brings the answer, and is no step.
        llm_calls: u32,
    },
    /// Tool calls were denied.
    Denied {
        /// How many.
        calls: usize,
        /// Their tools.
        tools: &'a str,
    },
    /// The session can be resumed after an early end.
    Resume {
        /// The command that does so.
        command: &'a str,
    },
    /// What all calls used.
    Costs {
        /// Money, where the model has a price.
        cost: Option<MicroUsd>,
        /// Tokens.
        usage: TokenUsage,
    },
    /// The model has not answered yet.
    Waiting,
    /// So many tools run.
    Running {
        /// How many.
        tools: usize,
    },
}

impl LogMessage<'_> {
    /// Returns the sentence in a language.
    pub fn render(&self, lang: Language) -> String {
        match lang {
            Language::En => english::render(self),
            Language::Es => spanish::render(self),
        }
    }
}

/// Returns a number whose thousands are set apart.
fn group_thousands(number: u64, mark: &str) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push_str(mark);
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_agree_with_their_nouns() {
        let call = |messages| {
            let message = LogMessage::ModelCall { purpose: CallPurpose::Agent, step: 1, messages };
            [message.render(Language::En), message.render(Language::Es)]
        };
        assert_eq!(
            call(1),
            ["Step 1 → LLM call (1 message)", "Paso 1 → llamada al LLM (1 mensaje)"]
        );
        assert_eq!(
            call(3),
            ["Step 1 → LLM call (3 messages)", "Paso 1 → llamada al LLM (3 mensajes)"]
        );
    }

    #[test]
    fn large_numbers_are_grouped_as_the_language_does() {
        assert_eq!(group_thousands(1_234_567, ","), "1,234,567");
        assert_eq!(
            [group_thousands(0, ","), group_thousands(999, ","), group_thousands(1_000, ".")],
            ["0", "999", "1.000"]
        );
    }
}
