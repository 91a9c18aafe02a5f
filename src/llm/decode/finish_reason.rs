//! The finish reasons of all servers.

use super::decoded_reply::DecodedPart;
use crate::llm::wire::Result;
use crate::types::{Fault, FaultKind, ReplyFinish};

/// The meaning of a finish reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    Unspecified,
    /// The model stopped.
    Finished(ReplyFinish),
    /// The server failed.
    Failed,
}

/// The spellings of each reason, in lower case, without separators, and between blanks.
static FINISH_WORDS: [(&str, FinishReason); 7] = [
    (" null none finishreasonunspecified notfinished ", FinishReason::Unspecified),
    (
        " stop stopped stopsequence stoptoken stopword eos eostoken eosid endturn endoftext endofturn \
         complete completed finish finished done ",
        FinishReason::Finished(ReplyFinish::Stop),
    ),
    (
        " toolcalls toolcall tooluse functioncall functioncalls ",
        FinishReason::Finished(ReplyFinish::ToolCalls),
    ),
    (
        " length maxtokens maxtoken maxoutputtokens maxnewtokens maxcompletiontokens maxlength \
         modellength tokenlimit limit ",
        FinishReason::Finished(ReplyFinish::Length),
    ),
    (
        " contentfilter contentfiltered sensitive refusal safety errortoxic guardrailintervened ",
        FinishReason::Finished(ReplyFinish::Refused),
    ),
    (" modelcontextwindowexceeded ", FinishReason::Finished(ReplyFinish::ContextFull)),
    (" error networkerror insufficientsystemresource aborted ", FinishReason::Failed),
];

impl FinishReason {
    /// Parses a reason; an unknown reason is kept unchanged.
    pub(crate) fn parse(reason: &str) -> Self {
        let letters = reason.chars().filter(|c| c.is_alphanumeric());
        let word = format!(" {} ", letters.collect::<String>().to_lowercase());
        if word.trim().is_empty() {
            return Self::Unspecified;
        }
        let known = FINISH_WORDS.iter().find(|(words, _)| words.contains(&word));
        known.map_or_else(
            || Self::Finished(ReplyFinish::Other(reason.into())),
            |(_, reason)| reason.clone(),
        )
    }

    /// Returns the finish reason; `None` if it is unspecified. Fails with a fault for an error. `reason` is the text of
    /// the server.
    pub(crate) fn into_finish(self, reason: &str) -> Result<Option<ReplyFinish>> {
        match self {
            Self::Unspecified => Ok(None),
            Self::Finished(finish) => Ok(Some(finish)),
            Self::Failed => {
                let message = format!("the provider aborted the reply: {reason}");
                Err(Fault::new(FaultKind::Server, message))
            }
        }
    }

    /// Returns the finish reason of a complete reply without one.
    pub(crate) fn infer(parts: &[DecodedPart]) -> ReplyFinish {
        let has_calls = parts.iter().any(|part| matches!(part, DecodedPart::Call { .. }));
        if has_calls { ReplyFinish::ToolCalls } else { ReplyFinish::Stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_spellings_of_a_reason_mean_the_same() {
        for (spellings, finish) in [
            (
                &["stop", "STOP", "Stop", "eos_token", "end_turn", "endTurn", "COMPLETE"][..],
                ReplyFinish::Stop,
            ),
            (&["tool_calls", "tool-calls", "TOOL_CALL", "tool_use"], ReplyFinish::ToolCalls),
            (
                &["length", "max_tokens", "MAX_TOKENS", "maxTokens", "max_output_tokens"],
                ReplyFinish::Length,
            ),
            (&["content_filter", "CONTENT_FILTERED", "SAFETY"], ReplyFinish::Refused),
            (&["model_context_window_exceeded"], ReplyFinish::ContextFull),
            (&["moon_phase", "7"], ReplyFinish::Other("".into())),
        ] {
            for spelling in spellings {
                let expected = match &finish {
                    ReplyFinish::Other(_) => ReplyFinish::Other((*spelling).into()),
                    known => known.clone(),
                };
                assert_eq!(
                    FinishReason::parse(spelling),
                    FinishReason::Finished(expected),
                    "{spelling}"
                );
            }
        }
        assert_eq!(
            ["", "null", " "].map(FinishReason::parse),
            [FinishReason::Unspecified, FinishReason::Unspecified, FinishReason::Unspecified]
        );
        assert_eq!(FinishReason::parse("NETWORK_ERROR"), FinishReason::Failed);
    }
}
