//! Reads replies: the parts shared by all API formats.

mod call_ids;
mod decoded_reply;
mod finish_reason;
mod lenient;
mod lone_surrogates;

pub(super) use call_ids::CallIds;
pub(super) use decoded_reply::{DecodedPart, DecodedReply, DeltaBuffer, estimate_usage};
pub(super) use finish_reason::FinishReason;
pub(super) use lenient::{
    JsonText, List, Object, TextField, TokenCount, TokenDetails, append, text_or_json,
};
pub(super) use lone_surrogates::{SurrogateJoiner, replace_lone_surrogates};
