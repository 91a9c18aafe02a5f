//! OpenAI Responses without state at the provider: every request contains the whole conversation, with the encrypted
//! reasoning items and the phases of the messages.

mod decode;
mod encode;
mod item;

use std::sync::Arc;

use super::wire::{ApiFormat, ReplyReader, Wire, WireSetup, path_or_default};
use crate::net::MAX_RESPONSE_BYTES;

/// OpenAI Responses.
pub(super) static FORMAT: ApiFormat = ApiFormat {
    name: "Responses",
    base_path: path_or_default,
    path: |_| "/responses".to_owned(),
    wire: |setup| Arc::new(Responses(setup)),
};

/// OpenAI Responses for one model.
#[derive(Debug)]
struct Responses(WireSetup);

impl Wire for Responses {
    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(decode::Reader::default())
    }

    /// The last event repeats the whole reply, and so can be as long as a response.
    #[allow(clippy::cast_possible_truncation)] // it fits
    fn max_event_bytes(&self) -> usize {
        MAX_RESPONSE_BYTES as usize
    }
}
