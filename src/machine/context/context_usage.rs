//! The size of the context: the provider's count, plus an estimate for the content since then.
//!
//! The estimate is calibrated by the provider's counts, so that it fits each model and language without a tokenizer. It
//! is incremental: a step only measures new content.

use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::machine::context::token_bound;
use crate::types::{
    ConversationItem, Image, OpaqueBlock, Reply, ReplyPart, Tokens, ToolResult, Usage,
};

/// Measures a conversation in bytes and estimates its size in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContextUsage {
    /// The size of everything that is sent: system prompt, tools, messages.
    size: ContentSize,
    /// The newest count of the provider, with the size of the counted content.
    provider_count: Option<ProviderCount>,
    /// Bytes per thousand tokens.
    ratio: u64,
}

/// The size of content, without a tokenizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ContentSize {
    pub bytes: u64,
    /// The upper bound of the content's tokens.
    pub most_tokens: Tokens,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct ProviderCount {
    tokens: Tokens,
    size: ContentSize,
}

/// Bytes per thousand tokens before the provider has counted anything: suitable for source code.
const INITIAL_RATIO: u64 = 3_500;

/// The plausible range of bytes per thousand tokens.
const PLAUSIBLE_RATIOS: std::ops::RangeInclusive<u64> = 2_000..=6_000;

/// The lowest number of bytes per token of text that this program writes itself: English and JSON.
const OWN_BYTES_PER_TOKEN: u64 = 2;

/// Counts with more bytes per token are rejected, because the server has counted only a part of the request. Short
/// requests may have any density.
const MAX_BYTES_PER_TOKEN: u64 = 16;
const SHORT_BYTES: u64 = 16_000;

/// The bytes of overhead of a message, a call or a result.
const FRAME_BYTES: u64 = 16;

/// The bytes of text that a token of an image counts as. Most texts have fewer bytes per token, so that the estimate is
/// not too low.
const BYTES_PER_IMAGE_TOKEN: u64 = 4;

impl ContentSize {
    pub(crate) const ZERO: Self = Self { bytes: 0, most_tokens: Tokens::ZERO };

    /// Returns the size of text from anywhere.
    pub(crate) fn of_text(text: &str) -> Self {
        Self { bytes: text.len() as u64, most_tokens: token_bound::most_tokens(text) }
    }

    /// Returns the size of text that this program has written: prompts, tools, the frames of messages.
    pub(crate) fn of_own(bytes: u64) -> Self {
        Self { bytes, most_tokens: Tokens(bytes.div_ceil(OWN_BYTES_PER_TOKEN)) }
    }
}

impl Add for ContentSize {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        let most_tokens = self.most_tokens + more.most_tokens;
        Self { bytes: self.bytes + more.bytes, most_tokens }
    }
}

impl Sum for ContentSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Self::add)
    }
}

impl ContextUsage {
    /// Creates the usage of an empty conversation with this many bytes of system prompt and tools.
    pub fn new(fixed: u64) -> Self {
        Self { size: ContentSize::of_own(fixed), provider_count: None, ratio: INITIAL_RATIO }
    }

    /// Adds an entry of this size.
    pub(crate) fn add(&mut self, size: ContentSize) {
        self.size = self.size + size;
    }

    /// Removes an entry of this size. The provider's count becomes invalid.
    pub(crate) fn remove(&mut self, size: ContentSize) {
        let ContentSize { bytes, most_tokens } = &mut self.size;
        *bytes = bytes.saturating_sub(size.bytes);
        *most_tokens = most_tokens.saturating_sub(size.most_tokens);
        self.provider_count = None;
    }

    /// Forgets the provider's count, which doesn't hold for another provider.
    pub(crate) fn forget_count(&mut self) {
        self.provider_count = None;
    }

    /// Calibrates with the provider's count of the last request. A count that can't cover the whole request is ignored,
    /// because some servers silently truncate.
    pub(crate) fn calibrate(&mut self, usage: &Usage) {
        let bytes = self.size.bytes;
        let is_part =
            bytes > SHORT_BYTES && usage.input.0.saturating_mul(MAX_BYTES_PER_TOKEN) < bytes;
        if usage.is_estimated || usage.input == Tokens::ZERO || is_part {
            return;
        }
        self.provider_count = Some(ProviderCount { tokens: usage.input, size: self.size });
        let ratio = bytes.saturating_mul(1_000) / usage.input.0;
        self.ratio = ratio.clamp(*PLAUSIBLE_RATIOS.start(), *PLAUSIBLE_RATIOS.end());
    }

    /// Returns the estimated size of the next request.
    pub fn estimate(&self) -> Tokens {
        self.estimate_request(self.size.bytes)
    }

    /// Returns the upper bound for the size of the next request: the provider's count, and the upper bound of new
    /// content.
    pub fn upper_bound(&self) -> Tokens {
        let ProviderCount { tokens, size } = self.provider_count.unwrap_or_default();
        let most = tokens + self.size.most_tokens.saturating_sub(size.most_tokens);
        most.max(self.estimate())
    }

    /// Returns the estimated tokens of this many bytes.
    pub fn estimate_tokens(&self, bytes: u64) -> Tokens {
        bytes_to_tokens(bytes, self.ratio)
    }

    /// Returns the estimated size of a request of this many bytes.
    pub(crate) fn estimate_request(&self, bytes: u64) -> Tokens {
        let ProviderCount { tokens: counted, size } = self.provider_count.unwrap_or_default();
        match bytes.checked_sub(size.bytes) {
            Some(new) => counted + self.estimate_tokens(new),
            // The request is a part of the counted content.
            None => Tokens(counted.0.saturating_mul(bytes).div_ceil(size.bytes)),
        }
    }

    /// Returns the maximum bytes of a request of this estimated size. Bytes beyond the provider's count are assumed to
    /// be at least as dense as source code, which leaves a margin.
    pub(crate) fn bytes_within(&self, size: Tokens) -> u64 {
        let ProviderCount { tokens: counted, size: known } =
            self.provider_count.unwrap_or_default();
        match size.0.checked_sub(counted.0) {
            Some(more) => known.bytes + more.saturating_mul(self.ratio.min(INITIAL_RATIO)) / 1_000,
            None => size.0.saturating_mul(known.bytes) / counted.0,
        }
    }
}

fn bytes_to_tokens(bytes: u64, ratio: u64) -> Tokens {
    Tokens(bytes.saturating_mul(1_000).div_ceil(ratio))
}

/// Returns the size of an instruction in a request.
pub(crate) fn instruction_size(text: &str) -> ContentSize {
    frame(1) + ContentSize::of_text(text)
}

/// Returns the size of an item in a request, without the overhead of the request's format.
pub(crate) fn item_size(item: &ConversationItem) -> ContentSize {
    match item {
        ConversationItem::User(message) => {
            frame(1) + ContentSize::of_text(&message.text) + images_size(&message.images)
        }
        ConversationItem::Assistant(reply) => reply_size(reply),
        ConversationItem::Exchange(exchange) => {
            let results = exchange.results().iter();
            let results: ContentSize = results.map(|result| frame(2) + result_size(result)).sum();
            reply_size(exchange.reply()) + results
        }
    }
}

fn frame(count: u64) -> ContentSize {
    ContentSize::of_own(count * FRAME_BYTES)
}

fn reply_size(reply: &Reply) -> ContentSize {
    let part = |part: &ReplyPart| match part {
        ReplyPart::Text(text) => ContentSize::of_text(text),
        ReplyPart::Call(call) => {
            let arguments = ContentSize::of_text(call.arguments.text());
            frame(3) + ContentSize::of_text(&call.name) + arguments
        }
        ReplyPart::Opaque(OpaqueBlock { json, .. }) => ContentSize::of_text(json),
    };
    frame(1) + reply.parts.iter().map(part).sum::<ContentSize>()
}

fn result_size(result: &ToolResult) -> ContentSize {
    ContentSize::of_text(&result.text) + images_size(&result.images)
}

/// Returns the size of text that has as many tokens as these images. The images' content itself is far longer.
pub(crate) fn images_size(images: &[Image]) -> ContentSize {
    let size =
        |image: &Image| ContentSize::of_own(image.tokens.0.saturating_mul(BYTES_PER_IMAGE_TOKEN));
    images.iter().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{
        MessageOrigin, ReplyFinish, ToolCall, ToolExchange, ToolResult, ToolStatus,
    };

    fn size(bytes: u64, most_tokens: u64) -> ContentSize {
        ContentSize { bytes, most_tokens: Tokens(most_tokens) }
    }

    fn reported(input: u64) -> Usage {
        Usage { input: Tokens(input), ..Usage::default() }
    }

    #[test]
    fn the_count_of_the_provider_is_used() {
        let mut usage = ContextUsage::new(1_000);
        usage.add(size(3_000, 2_000));
        usage.calibrate(&reported(900));
        assert_eq!(usage.estimate(), Tokens(900));
        assert_eq!(usage.upper_bound(), Tokens(900));
    }

    #[test]
    fn new_bytes_are_estimated_by_the_measured_density() {
        let mut usage = ContextUsage::new(4_000);
        usage.calibrate(&reported(1_000));
        usage.add(size(400, 300));
        assert_eq!(usage.estimate(), Tokens(1_100));
        assert_eq!(usage.upper_bound(), Tokens(1_300));
    }

    #[test]
    fn implausible_counts_and_estimates_do_not_calibrate() {
        let mut usage = ContextUsage::new(4_000);
        usage.calibrate(&Usage { is_estimated: true, ..reported(1) });
        usage.calibrate(&reported(0));
        assert_eq!(usage, ContextUsage::new(4_000));
        usage.calibrate(&reported(1));
        usage.add(size(6_000, 0));
        assert_eq!(usage.estimate(), Tokens(1 + 1_000));
    }

    #[test]
    fn a_count_of_a_part_is_rejected() {
        let mut usage = ContextUsage::new(140_000);
        usage.calibrate(&reported(4_096));
        assert_eq!(usage, ContextUsage::new(140_000));
        usage.calibrate(&reported(20_000));
        assert_eq!(usage.estimate(), Tokens(20_000));
    }

    #[test]
    fn the_bound_is_never_below_the_estimate() {
        for (fixed, counted, added) in [(0, 0, 10), (1_000, 10, 5_000), (1_000, 1_000, 7)] {
            let mut usage = ContextUsage::new(fixed);
            usage.calibrate(&reported(counted));
            usage.add(size(added, added / 16));
            assert!(usage.estimate() <= usage.upper_bound());
        }
    }

    #[test]
    fn counts_are_accepted_up_to_a_density() {
        let believed = |bytes, input| {
            let mut usage = ContextUsage::new(bytes);
            usage.calibrate(&reported(input));
            usage != ContextUsage::new(bytes)
        };
        // A short request may have any density.
        assert!(believed(SHORT_BYTES, 1));
        assert!(!believed(SHORT_BYTES + 16, 1));
        // At most sixteen bytes per token.
        assert!(believed(SHORT_BYTES + 16, 1_001));
        assert!(!believed(SHORT_BYTES + 17, 1_001));
        assert!(believed(SHORT_BYTES + 16, 1_002));
    }

    #[test]
    fn bytes_within_a_size_are_not_estimated_larger() {
        for (fixed, counted, added) in [(3_000, 0, 500), (3_000, 900, 500), (30_000, 29_000, 7)] {
            let mut usage = ContextUsage::new(fixed);
            usage.calibrate(&reported(counted));
            usage.add(size(added, added / 16));
            assert_eq!(usage.estimate_request(usage.size.bytes), usage.estimate());
            for size in [0, 1, 7, 899, 900, 901, 5_000, 60_000].map(Tokens) {
                let bytes = usage.bytes_within(size);
                assert!(usage.estimate_request(bytes) <= size, "{size:?} of {usage:?}");
                assert!(usage.estimate_request(bytes + 10) > size, "{size:?} of {usage:?}");
            }
        }
    }

    #[test]
    fn a_count_that_is_too_low_makes_no_space() {
        let mut usage = ContextUsage::new(8_000);
        usage.calibrate(&reported(100));
        assert_eq!(usage.bytes_within(Tokens(1_100)), 8_000 + 3_500);
    }

    #[test]
    fn the_bytes_of_an_item_are_its_texts_and_frames() {
        let item_bytes = |item: &ConversationItem| item_size(item).bytes;
        let call = ToolCall::new("1".into(), "read", "{}");
        let opaque = OpaqueBlock { wire: "a wire".into(), json: "[1]".into() };
        let parts =
            [ReplyPart::Text("so".into()), ReplyPart::Call(call), ReplyPart::Opaque(opaque)];
        let (finish, model) = (ReplyFinish::ToolCalls, None);
        let reply = Reply { parts: parts.into(), finish, usage: Usage::default(), model };
        let results = [ToolResult::new("1".into(), ToolStatus::Ok, "seven")];
        let expected = FRAME_BYTES + 2 + (3 * FRAME_BYTES + 4 + 2) + 3;
        assert_eq!(
            item_bytes(&ConversationItem::user(MessageOrigin::Task, "words")),
            FRAME_BYTES + 5
        );
        assert_eq!(item_bytes(&ConversationItem::Assistant(reply.clone())), expected);
        let exchange = ConversationItem::Exchange(ToolExchange::new(reply, results).unwrap());
        assert_eq!(item_bytes(&exchange), expected + 2 * FRAME_BYTES + 5);
    }
}
