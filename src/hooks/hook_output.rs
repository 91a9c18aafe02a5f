//! The output of hooks.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::HookError;

/// The decision of a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum HookOutput {
    /// Continue, possibly with changes.
    Continue(HookChanges),
    /// Block.
    Block {
        /// The reason, shown to the model.
        reason: String,
    },
}

/// Changes by a hook. Changes that have no meaning at its point are ignored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookChanges {
    /// The arguments of the tool call, before it runs.
    pub input: Option<Map<String, Value>>,
    /// The output of the tool call, after it ran.
    pub output: Option<String>,
    /// The system prompt, before a model call.
    pub system: Option<String>,
    /// The names of the tools to keep, before a model call. Tools cannot be added.
    pub tools: Option<Vec<String>>,
    /// Additional text for the model.
    pub context: Option<String>,
}

impl Default for HookOutput {
    fn default() -> Self {
        Self::Continue(HookChanges::default())
    }
}

/// The JSON output of a command. Other fields, used by hooks for other agents, are ignored.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HookOutputJson {
    decision: Option<String>,
    reason: Option<String>,
    #[serde(rename = "continue")]
    is_continued: Option<bool>,
    stop_reason: Option<String>,
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    updated_input: Option<Map<String, Value>>,
    #[serde(alias = "updatedToolOutput")]
    updated_output: Option<String>,
    updated_system_prompt: Option<String>,
    updated_tools: Option<Vec<String>>,
    additional_context: Option<String>,
    /// The object in which other agents expect some of these fields.
    hook_specific_output: Option<Box<HookOutputJson>>,
}

impl HookOutput {
    /// Parses the standard output of a successful command; empty output continues.
    ///
    /// # Errors
    ///
    /// Fails for anything except a single JSON object with a known meaning: an attempt to block must not be mistaken
    /// for consent.
    pub fn parse(stdout: &str) -> Result<Self, HookError> {
        if stdout.trim().is_empty() {
            return Ok(Self::default());
        }
        // Parsed as an object first: a list would be parsed as the fields in their order.
        let object: Result<Map<String, Value>, _> = serde_json::from_str(stdout);
        let parsed = object.and_then(|object| HookOutputJson::deserialize(Value::Object(object)));
        let parsed: HookOutputJson = parsed.map_err(|error| {
            HookError::Output(format!("its standard output is not a JSON object: {error}"))
        })?;
        parsed.into_output()
    }

    /// Returns an output with a text for the model.
    pub fn context(text: impl Into<String>) -> Self {
        Self::Continue(HookChanges { context: Some(text.into()), ..HookChanges::default() })
    }
}

impl HookOutputJson {
    fn into_output(mut self) -> Result<HookOutput, HookError> {
        let inner = self.hook_specific_output.take().map(|inner| inner.into_output());
        let inner = match inner.transpose()?.unwrap_or_default() {
            HookOutput::Continue(changes) => changes,
            block @ HookOutput::Block { .. } => return Ok(block),
        };
        let reason = self.reason.take();
        let permission_reason = self.permission_decision_reason.take().or_else(|| reason.clone());
        let decisions = [
            (self.decision.as_deref(), reason),
            (self.permission_decision.as_deref(), permission_reason),
        ];
        for (decision, reason) in decisions {
            let default = match decision {
                // A hook can tighten rules but not loosen them, so consent changes nothing.
                None | Some("allow" | "approve" | "continue") => continue,
                Some("block" | "deny") => "no reason was given",
                Some("ask") => "it requires confirmation, and no user can be asked here",
                Some(other) => {
                    return Err(HookError::Output(format!("its decision is unknown: {other:?}")));
                }
            };
            return Ok(HookOutput::Block { reason: reason.unwrap_or_else(|| default.to_owned()) });
        }
        if self.is_continued == Some(false) {
            let reason = self.stop_reason.unwrap_or_else(|| "no reason was given".to_owned());
            return Ok(HookOutput::Block { reason });
        }
        Ok(HookOutput::Continue(HookChanges {
            input: self.updated_input.or(inner.input),
            output: self.updated_output.or(inner.output),
            system: self.updated_system_prompt.or(inner.system),
            tools: self.updated_tools.or(inner.tools),
            context: self.additional_context.or(inner.context),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(stdout: &str) -> Result<HookOutput, String> {
        HookOutput::parse(stdout).map_err(|error| error.to_string())
    }

    #[allow(clippy::unnecessary_wraps)] // compared with the result of parsing
    fn block(reason: &str) -> Result<HookOutput, String> {
        Ok(HookOutput::Block { reason: reason.to_owned() })
    }

    #[test]
    fn a_permission_is_denied_with_either_reason() {
        let denied = |field| parse(&format!(r#"{{"permissionDecision":"deny","{field}":"no"}}"#));
        assert_eq!(denied("permissionDecisionReason"), block("no"));
        assert_eq!(denied("reason"), block("no"));
    }

    #[test]
    fn empty_output_and_consent_continue() {
        for text in ["", " \n", "{}", r#"{"decision":"allow"}"#, r#"{"continue":true,"x":1}"#] {
            assert_eq!(parse(text), Ok(HookOutput::default()), "{text}");
        }
    }

    #[test]
    fn every_spelling_of_blocking_is_recognized() {
        assert_eq!(parse(r#"{"decision":"block","reason":"r"}"#), block("r"));
        assert_eq!(parse(r#"{"decision":"deny"}"#), block("no reason was given"));
        assert_eq!(parse(r#"{"continue":false,"stopReason":"r"}"#), block("r"));
        let nested = r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"r"}}"#;
        assert_eq!(parse(nested), block("r"));
        let ask = r#"{"hookSpecificOutput":{"permissionDecision":"ask"}}"#;
        assert_eq!(parse(ask), block("it requires confirmation, and no user can be asked here"));
    }

    #[test]
    fn changes_are_read() {
        let text = r#"{"updatedInput":{"a":1},"updatedToolOutput":"o","updatedTools":["t"],
                       "hookSpecificOutput":{"additionalContext":"c"}}"#;
        let Ok(HookOutput::Continue(changes)) = parse(text) else { panic!() };
        assert_eq!(changes.input.unwrap()["a"], 1);
        assert_eq!((changes.output.as_deref(), changes.context.as_deref()), (Some("o"), Some("c")));
        assert_eq!(changes.tools.unwrap(), ["t"]);
    }

    /// Fault H4.
    #[test]
    fn invalid_output_is_a_failure_and_never_consent() {
        let wrong = ["ok", "{\"decision\":", "[]", "{} {}", r#"{"decision":"blokc"}"#];
        for text in wrong.into_iter().chain([r#"{"updatedInput":"ls"}"#, r#"{"decision":1}"#]) {
            assert!(parse(text).is_err(), "{text}");
        }
        let deep = "{\"a\":".repeat(100_000);
        assert!(parse(&deep).is_err());
    }
}
