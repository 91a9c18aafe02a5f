//! Why a model stopped, in all the words that servers have for it.

use super::draft::Piece;
use crate::model::{Fault, FaultKind, Finish};

/// What a finish reason says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Nothing.
    None,
    /// Why the model stopped.
    Finished(Finish),
    /// The server could not go on.
    Failed,
}

/// The words for each meaning, in lower case and without what separates words.
static WORDS: [(&[&str], Reason); 6] = [
    (&["", "null", "none", "finishreasonunspecified", "notfinished"], Reason::None),
    (
        &[
            "stop",
            "stopped",
            "stopsequence",
            "stoptoken",
            "stopword",
            "eos",
            "eostoken",
            "eosid",
            "endturn",
            "endoftext",
            "endofturn",
            "complete",
            "completed",
            "finish",
            "finished",
            "done",
        ],
        Reason::Finished(Finish::Stop),
    ),
    (
        &["toolcalls", "toolcall", "tooluse", "functioncall", "functioncalls"],
        Reason::Finished(Finish::ToolCalls),
    ),
    (
        &[
            "length",
            "maxtokens",
            "maxtoken",
            "maxoutputtokens",
            "maxnewtokens",
            "maxcompletiontokens",
            "maxlength",
            "modellength",
            "tokenlimit",
            "limit",
        ],
        Reason::Finished(Finish::Length),
    ),
    (
        &[
            "contentfilter",
            "contentfiltered",
            "sensitive",
            "refusal",
            "safety",
            "errortoxic",
            "guardrailintervened",
        ],
        Reason::Finished(Finish::Refused),
    ),
    (&["error", "networkerror", "insufficientsystemresource", "aborted"], Reason::Failed),
];

impl Reason {
    /// Returns what a reason says; one that is not known keeps its words.
    pub(crate) fn of(reason: &str) -> Self {
        let plain: String = reason.chars().filter(|c| c.is_alphanumeric()).collect();
        let plain = plain.to_lowercase();
        if plain == "modelcontextwindowexceeded" {
            return Self::Finished(Finish::ContextFull);
        }
        let known = WORDS.iter().find(|(words, _)| words.contains(&plain.as_str()));
        known.map_or_else(|| Self::Finished(Finish::Other(reason.into())), |(_, said)| said.clone())
    }

    /// Returns why the model stopped; `None` where that is not said, and a fault for a reason that is one. `reason` is
    /// how the server says it.
    pub(crate) fn finish(self, reason: &str) -> Result<Option<Finish>, Fault> {
        match self {
            Self::None => Ok(None),
            Self::Finished(finish) => Ok(Some(finish)),
            Self::Failed => {
                let message = format!("the provider broke the reply off: {reason}");
                Err(Fault::new(FaultKind::Server, message))
            }
        }
    }

    /// Returns why the model stopped, where the reply has come to its proper end and does not say why.
    pub(crate) fn unsaid(pieces: &[Piece]) -> Finish {
        let has_calls = pieces.iter().any(|piece| matches!(piece, Piece::Call { .. }));
        if has_calls { Finish::ToolCalls } else { Finish::Stop }
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
                Finish::Stop,
            ),
            (&["tool_calls", "tool-calls", "TOOL_CALL", "tool_use"], Finish::ToolCalls),
            (
                &["length", "max_tokens", "MAX_TOKENS", "maxTokens", "max_output_tokens"],
                Finish::Length,
            ),
            (&["content_filter", "CONTENT_FILTERED", "SAFETY"], Finish::Refused),
            (&["model_context_window_exceeded"], Finish::ContextFull),
            (&["moon_phase", "7"], Finish::Other("".into())),
        ] {
            for spelling in spellings {
                let expected = match &finish {
                    Finish::Other(_) => Finish::Other((*spelling).into()),
                    known => known.clone(),
                };
                assert_eq!(Reason::of(spelling), Reason::Finished(expected), "{spelling}");
            }
        }
        assert_eq!(["", "null", " "].map(Reason::of), [Reason::None, Reason::None, Reason::None]);
        assert_eq!(Reason::of("NETWORK_ERROR"), Reason::Failed);
    }
}
