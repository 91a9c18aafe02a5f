//! Reading replies: the parts that all API formats share.

mod call_ids;
mod decoded_reply;
mod finish_reason;
pub(super) mod lenient;
mod token_count;

pub(super) use call_ids::CallIds;
pub(super) use decoded_reply::{DecodedPart, DecodedReply, DeltaBuffer, estimate_usage};
pub(super) use finish_reason::FinishReason;
pub(super) use lenient::JsonText;
pub(super) use token_count::{InputDetails, OutputDetails, TokenCount};
