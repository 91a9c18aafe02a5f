//! Writing requests: each entry of a conversation is encoded once, whatever the number of requests it goes along with.

mod conversation;
pub(super) mod json;

pub(super) use conversation::{EncodedConversation, MessageGroup, MessageWriter};
