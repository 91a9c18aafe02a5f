//! The chunks of a stream. A complete reply is a chunk with messages instead of deltas.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use crate::llm::decode::{JsonText, List, Object, TextField, TokenCount, TokenDetails};
use crate::types::{Tokens, Usage};

/// A chunk, or a complete reply.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) model: TextField<'a>,
    pub(super) choices: List<Object<Choice<'a>>>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    /// `error` for an error of vLLM, whose fields are at the top level.
    pub(super) object: TextField<'a>,
    pub(super) x_groq: Object<GroqExtension<'a>>,
}

/// The usage that Groq reports without being asked.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct GroqExtension<'a> {
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: TokenCount,
    #[serde(borrow)]
    pub(super) delta: Object<MessageDelta<'a>>,
    /// The complete reply, or the reply so far; Perplexity always sends it together with the delta.
    pub(super) message: Object<MessageDelta<'a>>,
    pub(super) finish_reason: TextField<'a>,
    /// Upstream errors, which OpenRouter reports in the choice.
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageDelta<'a> {
    #[serde(borrow)]
    pub(super) content: MessageContent<'a>,
    pub(super) refusal: TextField<'a>,
    pub(super) reasoning_content: TextField<'a>,
    pub(super) reasoning: TextField<'a>,
    pub(super) reasoning_details: Option<&'a RawValue>,
    pub(super) tool_calls: List<Object<CallDelta<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta<'a> {
    pub(super) index: TokenCount,
    #[serde(borrow)]
    pub(super) id: TextField<'a>,
    pub(super) function: Object<FunctionDelta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow)]
    pub(super) name: TextField<'a>,
    pub(super) arguments: Option<&'a RawValue>,
}

/// The content: text, or with some servers a list of parts, including reasoning.
#[derive(Default)]
pub(super) struct MessageContent<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) reasoning: String,
}

impl MessageDelta<'_> {
    /// Returns whether the delta has no content.
    pub(super) fn is_empty(&self) -> bool {
        let texts = [&self.refusal, &self.reasoning_content, &self.reasoning];
        self.content.text.is_empty()
            && self.content.reasoning.is_empty()
            && texts.iter().all(|text| text.as_str().is_empty())
            && self.tool_calls.0.iter().flatten().all(|call| call.0.is_none())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MessageContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct ContentPart<'a> {
            #[serde(borrow)]
            text: MessageContent<'a>,
            thinking: MessageContent<'a>,
        }
        let json = <&RawValue>::deserialize(deserializer)?.get();
        let mut content = Self::default();
        if json.starts_with('"') {
            let text: JsonText<'_> = serde_json::from_str(json).map_err(D::Error::custom)?;
            content.text = text.0;
        }
        if json.starts_with('[') {
            let parts: List<Object<ContentPart<'_>>> =
                serde_json::from_str(json).map_err(D::Error::custom)?;
            for part in parts.objects() {
                match content.text.is_empty() {
                    true => content.text = part.text.text,
                    false => content.text.to_mut().push_str(&part.text.text),
                }
                content.reasoning.push_str(&part.thinking.text);
            }
        }
        Ok(content)
    }
}

/// Returns the usage reported by a server; `None` if it is invalid.
pub(super) fn parse_usage(json: &str) -> Option<Usage> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ReportedUsage {
        prompt_tokens: TokenCount,
        completion_tokens: TokenCount,
        total_tokens: TokenCount,
        prompt_tokens_details: Object<TokenDetails>,
        completion_tokens_details: Object<TokenDetails>,
        /// DeepSeek's count of cached input.
        prompt_cache_hit_tokens: TokenCount,
        /// Moonshot's count of cached input.
        cached_tokens: TokenCount,
    }
    let reported: ReportedUsage = serde_json::from_str(json).ok()?;
    let (input, written) = (reported.prompt_tokens.0?, reported.completion_tokens.0?);
    let details = reported.prompt_tokens_details.0.unwrap_or_default();
    let cached = [details.cached_tokens, reported.prompt_cache_hit_tokens, reported.cached_tokens];
    let cached = cached.into_iter().find_map(|count| count.0).unwrap_or(0);
    let written_details = reported.completion_tokens_details.0.unwrap_or_default();
    let reasoning = written_details.reasoning_tokens.tokens();
    // xAI counts reasoning in addition to the output, all other providers as a part of it.
    let is_beside =
        reasoning.0 > 0 && reported.total_tokens.0 == Some(input + written + reasoning.0);
    let output = if is_beside { Tokens(written) + reasoning } else { Tokens(written) };
    Some(Usage {
        input: Tokens(input),
        output,
        cached_input: Tokens(cached),
        cache_write: details.cache_write_tokens.tokens(),
        reasoning,
        is_estimated: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usage_format_is_parsed() {
        let numbers = |json| {
            let usage = parse_usage(json).unwrap();
            [usage.input, usage.output, usage.cached_input, usage.reasoning].map(|tokens| tokens.0)
        };
        let openai = r#"{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,
            "prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}"#;
        assert_eq!(numbers(openai), [9, 5, 4, 2]);
        let deepseek = r#"{"prompt_tokens":9,"completion_tokens":5,"prompt_cache_hit_tokens":3}"#;
        assert_eq!(numbers(deepseek), [9, 5, 3, 0]);
        let xai = r#"{"prompt_tokens":9,"completion_tokens":5,"total_tokens":16,
            "completion_tokens_details":{"reasoning_tokens":2}}"#;
        assert_eq!(numbers(xai), [9, 7, 0, 2]);
    }

    /// Fault L55.
    #[test]
    fn invalid_usage_is_ignored() {
        for json in ["{}", "[]", "7", r#"{"prompt_tokens":-1,"completion_tokens":2}"#] {
            assert_eq!(parse_usage(json), None, "{json}");
        }
    }

    #[test]
    fn content_is_text_or_parts() {
        let content = |json| serde_json::from_str::<MessageContent<'_>>(json).unwrap();
        assert!(matches!(content(r#""abc""#).text, Cow::Borrowed("abc")));
        assert_eq!(content(r#""a\nb""#).text, "a\nb");
        assert_eq!(content("null").text, "");
        let parts = r#"[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"ok"}]"#;
        let parts = content(parts);
        assert_eq!((&*parts.text, &*parts.reasoning), ("ok", "hm"));
    }
}
