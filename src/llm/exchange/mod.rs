//! One exchange with a provider, the same for every wire format: a request is put together from what was encoded
//! before, it is carried there and back, and its answer is told from what is none.

mod bom;
mod call;
mod prefix_check;
mod transport;
mod wire_model;

pub(super) use transport::{HttpTransport, IncomingResponse};
pub(super) use wire_model::{KeySource, RequestTarget, WireModel};
