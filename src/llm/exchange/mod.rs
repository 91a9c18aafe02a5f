//! One exchange with a provider, the same for every wire format: a request is put together from what was encoded
//! before, it is carried there and back, and its answer is told from what is none.

mod call;
mod carrier;
mod lead;
mod model;
mod steady;

pub(super) use carrier::{Carrier, Incoming};
pub(super) use model::{SentKey, Target, WireModel};
