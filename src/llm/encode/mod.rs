//! Encodes requests. Each conversation entry is encoded and hashed once, for all requests.

mod conversation;
pub(super) mod json;
mod request_hasher;

pub(super) use conversation::{EncodedConversation, MessageGroup, MessageWriter};
pub(super) use request_hasher::RequestHasher;
