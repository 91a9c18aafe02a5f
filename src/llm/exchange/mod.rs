//! The exchange with a provider, shared by all API formats.

mod byte_order_mark;
mod call;
mod prefix_check;
mod request_target;
mod transport;
mod wire_model;

pub(super) use request_target::{KeySource, RequestTarget};
pub(super) use transport::{HttpTransport, IncomingResponse, RequestSigner, ResponseBody};
pub(super) use wire_model::WireModel;
