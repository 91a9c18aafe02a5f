//! The chunks of a stream. A complete reply is one chunk with messages instead of deltas.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::llm::decode::{InputDetails, JsonText, OutputDetails, TokenCount, lenient};
use crate::model::{Tokens, Usage};

/// A chunk, or a complete reply.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub(super) model: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::objects")]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    /// `error` for an error of vLLM, whose fields are at the top level.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub(super) object: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    pub(super) x_groq: Option<GroqExtension<'a>>,
}

/// The usage that Groq reports without being asked.
#[derive(Deserialize)]
pub(super) struct GroqExtension<'a> {
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub(super) index: TokenCount,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    pub(super) delta: Option<MessageDelta<'a>>,
    /// The complete reply, or the reply so far; Perplexity sends it with the delta, streamed or not.
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    pub(super) message: Option<MessageDelta<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub(super) finish_reason: Option<JsonText<'a>>,
    /// OpenRouter reports upstream errors in the choice.
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
pub(super) struct MessageDelta<'a> {
    #[serde(borrow, default)]
    pub(super) content: MessageContent<'a>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub(super) refusal: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub(super) reasoning_content: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub(super) reasoning: Option<JsonText<'a>>,
    #[serde(borrow, default)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lenient::objects")]
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(default)]
    pub(super) index: TokenCount,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub(super) id: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    pub(super) function: Option<FunctionDelta<'a>>,
}

#[derive(Default, Deserialize)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub(super) name: Option<JsonText<'a>>,
    /// JSON text, or at some servers the object itself.
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// Content: text, or at some servers a list of parts, some of them reasoning.
#[derive(Default)]
pub(super) struct MessageContent<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) reasoning: String,
}

impl MessageDelta<'_> {
    /// Returns whether it has no content.
    pub(super) fn is_empty(&self) -> bool {
        let texts = [&self.refusal, &self.reasoning_content, &self.reasoning];
        self.content.text.is_empty()
            && self.content.reasoning.is_empty()
            && texts.iter().all(|text| text.as_ref().is_none_or(|text| text.0.is_empty()))
            && self.tool_calls.as_ref().is_none_or(Vec::is_empty)
    }
}

impl FunctionDelta<'_> {
    /// Returns the arguments as text.
    pub(super) fn arguments(&self) -> Result<Cow<'_, str>, serde_json::Error> {
        match self.arguments.map(RawValue::get) {
            None | Some("null") => Ok(Cow::Borrowed("")),
            Some(json) if json.starts_with('"') => {
                serde_json::from_str::<JsonText<'_>>(json).map(|text| text.0)
            }
            Some(json) => Ok(Cow::Borrowed(json)),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MessageContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = MessageContent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<MessageContent<'de>, E> {
        Ok(MessageContent { text: Cow::Borrowed(text), reasoning: String::new() })
    }

    fn visit_str<E>(self, text: &str) -> Result<MessageContent<'de>, E> {
        Ok(MessageContent { text: Cow::Owned(text.to_owned()), reasoning: String::new() })
    }

    fn visit_unit<E>(self) -> Result<MessageContent<'de>, E> {
        Ok(MessageContent::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<MessageContent<'de>, E> {
        Ok(MessageContent::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<MessageContent<'de>, E> {
        Ok(MessageContent::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<MessageContent<'de>, E> {
        Ok(MessageContent::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<MessageContent<'de>, E> {
        Ok(MessageContent::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<MessageContent<'de>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(MessageContent::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<MessageContent<'de>, A::Error> {
        #[derive(Deserialize)]
        struct ContentPart<'a> {
            #[serde(borrow, default)]
            text: MessageContent<'a>,
            #[serde(borrow, default)]
            thinking: MessageContent<'a>,
        }
        let (mut text, mut reasoning) = (String::new(), String::new());
        while let Some(piece) = parts.next_element::<&RawValue>()?.map(RawValue::get) {
            if !piece.starts_with('{') {
                continue;
            }
            let part: ContentPart<'_> = serde_json::from_str(piece).map_err(A::Error::custom)?;
            text.push_str(&part.text.text);
            reasoning.push_str(&part.thinking.text);
        }
        Ok(MessageContent { text: text.into(), reasoning })
    }
}

/// Returns the usage that a server reports; `None` if it is invalid.
pub(super) fn parse_usage(json: &str) -> Option<Usage> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ReportedUsage {
        prompt_tokens: TokenCount,
        completion_tokens: TokenCount,
        total_tokens: TokenCount,
        #[serde(deserialize_with = "lenient::object")]
        prompt_tokens_details: Option<InputDetails>,
        #[serde(deserialize_with = "lenient::object")]
        completion_tokens_details: Option<OutputDetails>,
        /// DeepSeek.
        prompt_cache_hit_tokens: TokenCount,
        /// Moonshot.
        cached_tokens: TokenCount,
    }
    let reported: ReportedUsage = serde_json::from_str(json).ok()?;
    let (input, written) = (reported.prompt_tokens.0?, reported.completion_tokens.0?);
    let details = reported.prompt_tokens_details.unwrap_or_default();
    let cached = [details.cached_tokens, reported.prompt_cache_hit_tokens, reported.cached_tokens];
    let cached = cached.into_iter().find_map(|count| count.0).unwrap_or(0);
    let reasoning =
        reported.completion_tokens_details.unwrap_or_default().reasoning_tokens.tokens();
    // xAI counts reasoning in addition to the output, all others as a part of it.
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
    fn invalid_usage_is_none() {
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
