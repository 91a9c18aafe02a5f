//! Writing requests. Each entry of a conversation is encoded once, for all requests.

mod conversation;
pub(super) mod json;

pub(super) use conversation::{EncodedConversation, MessageGroup, MessageWriter};
