//! Thinking blocks that are bound to their conversation.
//!
//! Newer models sign a thinking block together with the preceding conversation, and reject a request in which that
//! conversation differs: after a compaction, with another system prompt or other tools, or in the final summary. With
//! an option, which has its own header, they drop such blocks instead.

use serde_json::{Value, json};

/// The header that enables the option.
pub(super) const BETA_HEADER: (&str, &str) =
    ("anthropic-beta", "thinking-binding-controls-2026-08-01");

/// The first version with bound thinking blocks.
const FIRST_BINDING_VERSION: (u32, u32) = (5, 1);

/// Returns whether a model binds its thinking blocks, according to its version.
pub(super) fn binds_thoughts(model: &str) -> bool {
    version(model).is_some_and(|version| version >= FIRST_BINDING_VERSION)
}

/// Returns whether a model decides itself how much it thinks, guided by an effort; older models get a number of tokens.
pub(super) fn thinks_adaptively(model: &str) -> bool {
    version(model).is_some_and(|version| version >= (4, 6))
}

/// Returns the version in the name of a model.
fn version(model: &str) -> Option<(u32, u32)> {
    // On Bedrock, the names of a region and of the maker precede it.
    let model = model.rsplit_once("anthropic.").map_or(model, |(_, name)| name);
    let name = model.strip_prefix("claude-")?;
    // A longer number is a date.
    let number = |part: &str| part.parse::<u32>().ok().filter(|number| *number < 100);
    let mut parts = name.split(['-', '@', '.']);
    // The names of the oldest models have the version before the family.
    if parts.next().is_none_or(|family| number(family).is_some()) {
        return None;
    }
    let mut version = parts.map_while(number);
    Some((version.next()?, version.next().unwrap_or(0)))
}

/// Returns the value of the option. `adaptive` is the default of these models.
pub(super) fn option() -> Value {
    json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_from_5_1_on_bind_their_thoughts() {
        for model in [
            "claude-opus-5-5",
            "claude-fable-5-1",
            "claude-haiku-5-5",
            "claude-sonnet-6",
            "claude-opus-6-20270101",
            "us.anthropic.claude-opus-5-5-20270101-v1:0",
            "claude-opus-5-5@20270101",
        ] {
            assert!(binds_thoughts(model), "{model}");
        }
        for model in [
            "claude-opus-5",
            "claude-sonnet-5-20260630",
            "claude-opus-4-8",
            "anthropic.claude-opus-5-20260101-v1:0",
            "claude-haiku-4-5-20251001",
            "claude-3-7-sonnet-latest",
            "kimi-k2",
            "m",
        ] {
            assert!(!binds_thoughts(model), "{model}");
        }
    }
}
