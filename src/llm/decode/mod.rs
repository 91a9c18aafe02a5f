//! Reading replies: what every wire's reader gathers, and what becomes of it once the terminal event has come.

mod count;
mod draft;
mod finish;
pub(super) mod lenient;
mod names;

pub(super) use count::{Count, InputDetails, OutputDetails};
pub(super) use draft::{Draft, Piece, Said, estimate};
pub(super) use finish::Reason;
pub(super) use lenient::Text;
pub(super) use names::Names;
