//! Classifies errors: one taxonomy of faults for all providers.

mod api_error;
mod classify;
mod masking;
mod network;

pub(super) use api_error::{ApiError, is_error};
pub(super) use classify::{classify_response, classify_stream_error, reply_error};
pub(super) use masking::{excerpt, readable};
pub(super) use network::network_fault;
